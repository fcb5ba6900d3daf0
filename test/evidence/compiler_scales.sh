#!/usr/bin/env bash
# A Llama 65B without weights, planned and compiled for 512 unequal devices: seconds and memory; and a table over layers and devices.
#   compiler_scales.sh [--quick]     --quick: the large one and two small ones
# Installs PyTorch into .venv to export the models; takes a few minutes for that the first time.
set -euo pipefail
cd "$(dirname "$0")/../.."
python=${ZORSE_PYTHON:-$(tools/python-env.sh | tail -1)}
exec "$python" test/benchmark/compile_scale.py "$@"
