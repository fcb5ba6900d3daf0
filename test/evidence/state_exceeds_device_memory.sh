#!/usr/bin/env bash
# Claim: A model whose training state is more than four times the memory of its device trains on it, to the
#   bits of a run without limits, on a processor and on an emulated GPU; its parameters come at most twice a
#   step and unit, two chunks of them are there at most, and no state stays on the device.
# Topic: Memory
# Quick: fewer steps and micro-batches
set -euo pipefail
cd "$(dirname "$0")/../.."
exec /usr/bin/python3 test/e2e/larger_than_memory.py "$@"
