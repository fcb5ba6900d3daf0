#!/usr/bin/env bash
# Claim: Offloading the activations of a deep GPT leaves at most a quarter of them on the device at 1.22 times the step; losses
#   are the same to every bit.
# Topic: Memory
# Quick: fewer turns
set -euo pipefail
cd "$(dirname "$0")/../.."
exec /usr/bin/python3 test/e2e/activations.py offload "$@"
