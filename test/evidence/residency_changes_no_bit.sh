#!/usr/bin/env bash
# Claim: Where state is kept (device or host), when parameters come (once a step or by phase) and whether cells
#   recompute or offload changes no bit of losses, norms, gradients and checkpoints; runs go on under plans with other memories.
# Topic: Memory
# Quick: processors in f32, emulated GPUs in bf16
set -euo pipefail
cd "$(dirname "$0")/../.."
exec /usr/bin/python3 test/e2e/state_tiers.py "$@"
