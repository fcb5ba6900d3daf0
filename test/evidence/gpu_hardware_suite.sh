#!/usr/bin/env bash
# Claim: The validation kit passes on a real GPU: kernels and products are right, GPT and LLaMA train in f32, bf16 and f16 as on processors, twice to the same bits, without a
#   report of compute-sanitizer; GPT-2 124M in bf16 is timed beside PyTorch.
# Topic: GPUs
# Quick: GPT in f32 alone
#
# Needs a GPU, its driver and cuBLASLt; with PyTorch (tools/python-env.sh) also GPT-2.
set -euo pipefail
cd "$(dirname "$0")/../.."
if ! arch=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -1 | tr -d .) || [ -z "$arch" ]; then
  echo "no GPU of NVIDIA on this machine"
  exit 77
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
form=() python=/usr/bin/python3
if [ "${1:-}" = --quick ]; then
  form=(--quick)
else
  python=$(tools/python-env.sh | tail -1)
  "$python" models/make_benchmark.py gpt2-124m "$folder/gpt2.onnx" >/dev/null
  form=(--gpt2 "$folder/gpt2.onnx")
fi
"$python" test/hardware/make_kit.py "$folder/kit" --arch "sm_$arch" "${form[@]}"
PYTHON=$python "$folder/kit/run.sh"
