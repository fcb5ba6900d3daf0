#!/usr/bin/env bash
# Makes the validation kit for GPUs, from what is built: make_kit.sh OUT [--arch sm_80] [--gpt2 GPT2.onnx]. What it is and how to read it: docs/gpu.md.
# --gpt2 needs the package onnx: PYTHON=.venv/bin/python (tools/python-env.sh).
set -euo pipefail
exec "${PYTHON:-/usr/bin/python3}" "$(dirname "$0")/make_kit.py" "$@"
