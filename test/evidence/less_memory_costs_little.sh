#!/usr/bin/env bash
# Claim: Plans for devices with four tenths less memory than the fullest device of the fastest plan without memory techniques takes: how much longer a step of Llama 7B is on clusters A and B,
#   simulated.
# Topic: Memory
# Quick: cluster A
set -euo pipefail
cd "$(dirname "$0")/../.."
if [ "${1:-}" = --quick ]; then
  exec build/release/bin/memory-trade --clusters=a
fi
exec build/release/bin/memory-trade
