#!/usr/bin/env bash
# Claim: Models of many kinds (Hugging Face classes, own modules with trained biases of scores, rotations written out, weighted, masked, two-term and added losses) in up
#   to four exports, two shapes, one device and two with a random plan, train to PyTorch's losses and gradients.
# Topic: Exports
# Quick: unoptimised exports of three kinds
#
# Installs PyTorch into .venv.
set -euo pipefail
cd "$(dirname "$0")/../.."
variants=unoptimised,default,opset23,torchscript names=()
[ "${1:-}" = --quick ] && variants=unoptimised names=(gpt2 no-loss score-bias)
python=${ZORSE_PYTHON:-$(tools/python-env.sh | tail -1)}
exec "$python" test/e2e/families.py --variants $variants "${names[@]}"
