#!/usr/bin/env bash
# TorchScript and dynamo exports of one model: identical canonical graphs, equal losses (installs PyTorch into .venv). --quick: 5 steps.
set -euo pipefail
cd "$(dirname "$0")/../.."
steps=50; [ "${1:-}" = --quick ] && steps=5
python=${ZORSE_PYTHON:-$(tools/python-env.sh | tail -1)}
exec "$python" test/e2e/exporters.py --hf --steps $steps
