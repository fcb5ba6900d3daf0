#!/usr/bin/env bash
# Claim: Of ONNX's own cases of single nodes that can be wrapped in a model with a loss at least 1,000 are imported, and none gives another loss than ONNX's results do.
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
