#!/usr/bin/env bash
# Claim: Kernels of attention on tensor cores, heads of 64 and 128, causal, bf16, reach by a model of their machine code's loops at least 0.65 of the dense peak forward on
#   A100 and 0.85 on RTX 4090, and 0.50 of what mma.sync reaches on H100; backward, with five products counted, 0.49 and 0.42, 0.67 and 0.62, 0.42 and 0.37; none spills.
# Topic: GPUs
# Quick: A100 alone
#
# A model, not a measurement: nothing has met hardware. Fetches assembler and disassembler into .cache.
set -euo pipefail
cd "$(dirname "$0")/../.."
tools/ptxas.sh >/dev/null || exit 77
tools/nvdisasm.sh >/dev/null || exit 77
exec /usr/bin/python3 test/e2e/attention_share.py "$@"
