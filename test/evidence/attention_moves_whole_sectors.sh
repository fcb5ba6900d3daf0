#!/usr/bin/env bash
# Claim: The kernels of attention on tensor cores, forward and backward, of heads of 16, 32, 64, 80, 96, 128 and 256 elements ask shared memory at most 1.1 times as often as without bank conflicts, each of
#   them, and at least 0.95 of the bytes that they move between global memory and threads are asked for; counted on the emulator.
# Topic: GPUs
# Quick: whole
set -euo pipefail
cd "$(dirname "$0")/../.."
bin=${ZORSE_BIN:-build/release/bin}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
/usr/bin/python3 test/e2e/attention_kernels.py --traffic "$folder/attention.mlir"
"$bin/kernel-traffic" "$folder/attention.mlir" 1 0.95 1e9 1000 1000 1.1
