#!/usr/bin/env bash
# Claim: Gradients of ONNX's own cases of single nodes match differences of the loss in double precision.
# Topic: Exports
# Quick: the cases of activations and reductions
#
# Installs onnx into .venv.
set -euo pipefail
cd "$(dirname "$0")/../.."
python=${ZORSE_PYTHON:-$(tools/python-env.sh | tail -1)}
if [ "${1:-}" = --quick ]; then
  exec "$python" test/unit/import/node_gradients.py build/release/bin/evaluate-onnx 'test_[erl]*' --least 60
fi
exec "$python" test/unit/import/node_gradients.py build/release/bin/evaluate-onnx --least 880
