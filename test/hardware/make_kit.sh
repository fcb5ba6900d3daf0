#!/usr/bin/env bash
# Makes the validation kit for GPUs from the build: make_kit.sh OUT [--arch sm_80] [--gpt2 GPT2.onnx]. docs/guides/nvidia-gpus.md
# describes the kit and how to read its report. --gpt2 needs the package onnx: PYTHON=.venv/bin/python
# (tools/python-env.sh).
set -euo pipefail
exec "${PYTHON:-/usr/bin/python3}" "$(dirname "$0")/make_kit.py" "$@"
