#!/usr/bin/env bash
# Claim: A Llama 65B without weights is planned and compiled for 512 unequal devices in seconds.
# Topic: Compiler
# Quick: the large one and two small ones, without the table over layers and devices
#
# Installs PyTorch into .venv to export the models; takes a few minutes for that the first time.
set -euo pipefail
cd "$(dirname "$0")/../.."
python=${ZORSE_PYTHON:-$(tools/python-env.sh | tail -1)}
exec "$python" test/benchmark/compile_scale.py "$@"
