#!/usr/bin/env bash
# Claim: Models of transformers of six families (LLaMA, GPT-2, OPT, BERT, ViT, T5) train from Python, resume, are evaluated and interrupted, in a script, as cells of a
#   notebook and in a process of its own; whatever fails after the last step or in between, the weights are there.
# Topic: Getting started
# Quick: one family in a script, fewer modules
#
# Installs PyTorch into .venv.
set -euo pipefail
cd "$(dirname "$0")/../.."
source test/evidence/figures.bash
python=${ZORSE_PYTHON:-$(tools/python-env.sh | tail -1)}
figure "families" "$python" test/e2e/python_families.py "$@"
figure "modules" "$python" test/e2e/python_modules.py "$@"
