#!/usr/bin/env bash
# Claim: One device trains in bf16 as PyTorch does, under autocast and with a bf16 module and f32 masters: losses of 200 steps lie within twice the band in which PyTorch
#   differs from itself, and first-step gradients are closer to f64 than PyTorch's in the geometric mean.
# Topic: Mathematics
# Quick: GPT only
set -euo pipefail
cd "$(dirname "$0")/../.."
exec /usr/bin/python3 test/e2e/low_precision.py "$@"
