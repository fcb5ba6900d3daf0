#!/usr/bin/env bash
# Claim: The quickstart trains a small GPT over four unequal devices in two stages; its checkpoint loads into PyTorch by name.
# Topic: Getting started
# Quick: whole
#
# 120 steps of training; installs PyTorch into .venv.
set -euo pipefail
cd "$(dirname "$0")/../.."
tools/quickstart.sh 120
python=${ZORSE_PYTHON:-$(tools/python-env.sh | tail -1)}
exec "$python" test/e2e/checkpoint_loads.py out/quickstart
