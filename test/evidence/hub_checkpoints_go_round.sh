#!/usr/bin/env bash
# Claim: Checkpoints of the Hugging Face hub go in and come out: transformers loads what was trained, with the logits of PyTorch's own training, whole models and LoRA adapters (also in PEFT);
#   names, ties, transposes and types are those of the source, and what is missing, left over or ambiguous is named.
# Topic: Exports
# Quick: names for one model, adapters for one, no optimised exports
#
# Installs PyTorch into .venv.
set -euo pipefail
cd "$(dirname "$0")/../.."
python=${ZORSE_PYTHON:-$(tools/python-env.sh | tail -1)}
exec "$python" test/e2e/hub.py "$@"
