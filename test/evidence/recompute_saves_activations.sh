#!/usr/bin/env bash
# Claim: Recomputing a deep GPT by half blocks takes at most a quarter of its activations at 1.22 times the step; losses
#   are the same to every bit.
# Topic: Memory
# Quick: fewer turns
set -euo pipefail
cd "$(dirname "$0")/../.."
exec /usr/bin/python3 test/e2e/activations.py recompute "$@"
