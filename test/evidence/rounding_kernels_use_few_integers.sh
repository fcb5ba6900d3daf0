#!/usr/bin/env bash
# Claim: Kernels that round to bf16 or f16 on A100, H100 and RTX 5090 (residual addition, GELU forward and backward, gradient of cross-entropy, casts of parameters) spend at most
#   30 % of the instructions that a warp executes on integers, addresses and the widening of bf16 included; counted in their machine code.
# Topic: GPUs
# Quick: bf16 on A100
#
# A count along the usual path, not a measurement: test/benchmark/sass/mix.py says what is an integer instruction. Fetches assembler and disassembler into .cache.
set -euo pipefail
cd "$(dirname "$0")/../.."
tools/ptxas.sh >/dev/null || exit 77
tools/nvdisasm.sh >/dev/null || exit 77
exec /usr/bin/python3 test/e2e/rounding_mix.py "$@"
