#!/usr/bin/env bash
# Claim: GPT-2 124M compiles in seconds, for 1 device and for 8.
# Topic: Compiler
# Quick: whole
#
# Installs PyTorch into .venv to make the model.
set -euo pipefail
cd "$(dirname "$0")/../.."
python=${ZORSE_PYTHON:-$(tools/python-env.sh | tail -1)}
mkdir -p out
[ -f out/gpt2-124m.onnx ] || "$python" models/make_benchmark.py gpt2-124m out/gpt2-124m.onnx
exec /usr/bin/python3 test/benchmark/compile_time.py out/gpt2-124m.onnx
