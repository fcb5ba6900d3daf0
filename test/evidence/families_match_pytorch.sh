#!/usr/bin/env bash
# Models of many families, exported in several ways, train to PyTorch's losses and gradients on one device and on two (installs PyTorch into .venv). --quick: unoptimised exports only.
set -euo pipefail
cd "$(dirname "$0")/../.."
variants=unoptimised,default,opset23,torchscript; [ "${1:-}" = --quick ] && variants=unoptimised
python=${ZORSE_PYTHON:-$(tools/python-env.sh | tail -1)}
exec "$python" test/e2e/families.py --variants $variants
