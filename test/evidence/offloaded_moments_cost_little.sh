#!/usr/bin/env bash
# Claim: Moments on the host cost a step little on CPU devices of equal memory, measured in pairs; all state there, updated on the device or by the
#   host's processor, for comparison.
# Topic: Memory
# Quick: 3 pairs instead of 10, moments alone
set -euo pipefail
cd "$(dirname "$0")/../.."
exec /usr/bin/python3 test/benchmark/offload_cost.py "$@"
