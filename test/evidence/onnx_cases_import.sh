#!/usr/bin/env bash
# Claim: At least 1,000 of ONNX's own single-node cases are imported with a loss around them, and each gives the loss of ONNX's results.
# Topic: Exports
# Quick: the cases of resized images
#
# Installs onnx into .venv.
set -euo pipefail
cd "$(dirname "$0")/../.."
python=${ZORSE_PYTHON:-$(tools/python-env.sh | tail -1)}
if [ "${1:-}" = --quick ]; then
  exec "$python" test/unit/import/node_cases.py build/release/bin/evaluate-onnx 'test_resize_*' --least 35
fi
exec "$python" test/unit/import/node_cases.py build/release/bin/evaluate-onnx --least 1000
