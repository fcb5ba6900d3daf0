#!/usr/bin/env bash
# Claim: NVIDIA's assembler takes every variant of attention on tensor cores, forward and backward, for sm_80, 86, 89, 90, 100 and 120 (six head sizes, two types, eight ways
#   to treat scores). No kernel spills a register where tiles divide the lengths, and none more than 80 bytes elsewhere.
# Topic: GPUs
# Quick: bf16, two ways to treat scores, sm_80
#
# Fetches the assembler into .cache/ptxas.
set -euo pipefail
cd "$(dirname "$0")/../.."
tools/ptxas.sh >/dev/null || exit 77
exec /usr/bin/python3 test/e2e/attention_kernels.py "$@"
