#!/usr/bin/env bash
# Claim: Without a profile, planning predicts what published runs reach on A100, H100 and RTX 4090 (GPT-2 124M and 1.5B, MPT 7B, Llama 3 8B) within a factor of 1.5 each, and of
#   1.2 all together.
# Topic: GPUs
# Quick: without GPT-2 124M as Zorse compiles it
#
# A model against figures of other frameworks; Zorse itself has not met hardware. The long form makes GPT-2's ONNX file with PyTorch in .venv.
set -euo pipefail
cd "$(dirname "$0")/../.."
if [ "${1:-}" = --quick ]; then exec /usr/bin/python3 test/e2e/gpu_time_model.py; fi
python=${ZORSE_PYTHON:-$(tools/python-env.sh | tail -1)}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$python" models/make_benchmark.py gpt2-124m "$folder/gpt2.onnx" >/dev/null
/usr/bin/python3 test/e2e/gpu_time_model.py --gpt2 "$folder/gpt2.onnx"
