#!/usr/bin/env bash
# Claim: In bf16 one device trains as PyTorch does, in both of PyTorch's habits (autocast; a module of bf16 with f32 masters): losses of 200 steps within twice the band
#   in which PyTorch differs from itself, no further from f32 than 1.2 times PyTorch's; first-step gradients closer to f64 than PyTorch's in the geometric mean.
# Topic: Mathematics
# Quick: GPT only
set -euo pipefail
cd "$(dirname "$0")/../.."
exec /usr/bin/python3 test/e2e/low_precision.py "$@"
