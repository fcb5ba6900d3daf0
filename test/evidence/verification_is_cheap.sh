#!/usr/bin/env bash
# Verification's share of compile time at 512 devices, and the memory of such a compilation: zorse-compile on a model of 80 blocks (installs PyTorch into
# .venv to make it). --quick: the same phases on a synthetic model, which needs no PyTorch.
set -euo pipefail
cd "$(dirname "$0")/../.."
[ "${1:-}" = --quick ] && exec build/release/bin/verification-cost
python=${ZORSE_PYTHON:-$(tools/python-env.sh | tail -1)}
mkdir -p out
[ -f out/gpt-80-blocks.onnx ] || "$python" models/make_benchmark.py gpt-80-blocks out/gpt-80-blocks.onnx
exec /usr/bin/python3 test/benchmark/verification_cost.py out/gpt-80-blocks.onnx
