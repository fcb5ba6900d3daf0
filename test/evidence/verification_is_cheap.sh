#!/usr/bin/env bash
# Claim: Verification of 80 layers on 512 devices takes less than half a second on a quiet machine, and no more than a third of the compilation, kernels left out.
# Topic: Verifier
# Quick: the same phases on a synthetic model, which needs no PyTorch
#
# A model of 80 blocks; installs PyTorch into .venv to make it.
set -euo pipefail
cd "$(dirname "$0")/../.."
[ "${1:-}" = --quick ] && exec build/release/bin/verification-cost
python=${ZORSE_PYTHON:-$(tools/python-env.sh | tail -1)}
mkdir -p out
[ -f out/gpt-80-blocks.onnx ] || "$python" models/make_benchmark.py gpt-80-blocks out/gpt-80-blocks.onnx
exec /usr/bin/python3 test/benchmark/verification_cost.py out/gpt-80-blocks.onnx
