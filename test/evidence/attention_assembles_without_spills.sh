#!/usr/bin/env bash
# Claim: Every variant of attention on tensor cores, of six head sizes, two types and eight ways to treat scores, grouped heads and as many of keys as of queries, forward and backward, is taken by
#   NVIDIA's assembler for sm_80, 86, 89, 90, 100 and 120, and no kernel spills a register; with lengths that tiles do not divide, none more than 80 bytes.
# Topic: GPUs
# Quick: bf16, two ways to treat scores, sm_80
#
# Fetches the assembler into .cache/ptxas.
set -euo pipefail
cd "$(dirname "$0")/../.."
tools/ptxas.sh >/dev/null || exit 77
exec /usr/bin/python3 test/e2e/attention_kernels.py "$@"
