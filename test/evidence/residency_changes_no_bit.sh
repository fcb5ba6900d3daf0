#!/usr/bin/env bash
# Claim: Residency of state (device or host), gathers of parameters (once a step or by phase), recomputation and offload change no bit of losses, norms, gradients and
#   checkpoints; runs go on under plans with other memories.
# Topic: Memory
# Quick: processors in f32, emulated GPUs in bf16
set -euo pipefail
cd "$(dirname "$0")/../.."
exec /usr/bin/python3 test/e2e/state_tiers.py "$@"
