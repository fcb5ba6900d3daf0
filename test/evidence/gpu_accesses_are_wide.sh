#!/usr/bin/env bash
# Claim: GPU kernels of GPT-2 124M use at least 0.95 of the bytes in the 32-byte sectors that they move. A block moves its sectors at most 1.10 times, and launches at most
#   6 kernels forward and 8 backward besides products and attention (counted on the emulator).
# Topic: GPUs
# Quick: the GPT of models/small
#
# The long form makes GPT-2's ONNX file with PyTorch in .venv.
set -euo pipefail
cd "$(dirname "$0")/../.."
bin=${ZORSE_BIN:-build/release/bin}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
model=models/small/gpt.onnx
if [ "${1:-}" != --quick ]; then
  python=${ZORSE_PYTHON:-$(tools/python-env.sh | tail -1)}
  model=$folder/gpt2.onnx
  "$python" models/make_benchmark.py gpt2-124m "$model" >/dev/null
fi
"$bin/zorse-compile" "$model" --seq 64 --compile-to=backward --emit units 2>"$folder/messages" >"$folder/units.mlir" || { cat "$folder/messages"; exit 1; }
"$bin/kernel-traffic" "$folder/units.mlir" 1 0.95 1.10 6 8
