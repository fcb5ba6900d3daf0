#!/usr/bin/env bash
# Claim: Copies, transfers and reductions of GPUs run beside computing as the program says: on emulated GPUs at a pace of their own, at least 0.75 of the seconds that the simulated step hides are hidden.
# Topic: GPUs
# Quick: one plan, directly from GPU to GPU
set -euo pipefail
cd "$(dirname "$0")/../.."
exec /usr/bin/python3 test/e2e/overlap.py "$@"
