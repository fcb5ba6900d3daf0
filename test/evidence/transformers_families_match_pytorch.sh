#!/usr/bin/env bash
# Claim: One small model of every family of transformers, and own ResNet-, ConvNeXt-, U-Net-, LSTM- and mixture-of-experts-style modules, train to PyTorch's losses, first
#   gradients, parameters and running statistics over three steps on one device and under a random plan, or are refused by name.
# Topic: Exports
# Quick: thirteen families
#
# Installs PyTorch into .venv. Outcomes are kept in out/families.json, and a run goes on where one was interrupted: all families take hours.
set -euo pipefail
cd "$(dirname "$0")/../.."
python=${ZORSE_PYTHON:-$(tools/python-env.sh | tail -1)}
export OMP_NUM_THREADS=1
[ "${1:-}" = --quick ] && exec "$python" test/e2e/transformers_families.py --quick --least 10
mkdir -p out
exec "$python" test/e2e/transformers_families.py --save out/families.json --least 385
