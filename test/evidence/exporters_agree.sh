#!/usr/bin/env bash
# Claim: Exporters agree: TorchScript and dynamo (default, unoptimised, dynamic axes, opset 23) of one model give identical canonical graphs and equal losses.
# Topic: Exports
# Quick: own models only, 5 steps instead of 50
#
# Installs PyTorch into .venv.
set -euo pipefail
cd "$(dirname "$0")/../.."
more=(--hf --steps 50); [ "${1:-}" = --quick ] && more=(--steps 5)
python=${ZORSE_PYTHON:-$(tools/python-env.sh | tail -1)}
exec "$python" test/e2e/exporters.py "${more[@]}"
