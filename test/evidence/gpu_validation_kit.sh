#!/usr/bin/env bash
# Claim: The validation kit for GPUs runs whole on the emulator: versions, code of the driver's compiler, kernels, products, times, NCCL, memory, training under every
#   sort of plan, speed and compute-sanitizer, each within its time; and each of its steps finds a fault that is planted for it.
# Topic: GPUs
# Quick: GPT in f32 and one class of kernels
set -euo pipefail
cd "$(dirname "$0")/../.."
form=(--all)
[ "${1:-}" = --quick ] && form=()
exec /usr/bin/python3 test/e2e/hardware_kit.py "${form[@]}"
