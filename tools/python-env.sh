#!/usr/bin/env bash
# Creates .venv with the packages for exporting models and for PyTorch references (several GB; not
# needed to build, compile or run).
set -euo pipefail
cd "$(dirname "$0")/.."
if [ ! -x .venv/bin/python ]; then
  python3 -c 'import venv, ensurepip' 2>/dev/null || tools/install.sh >&2
  python3 -m venv .venv
fi
.venv/bin/python -c 'import torch, onnx, onnxscript, transformers, safetensors, peft' 2>/dev/null ||
  .venv/bin/pip install -q torch onnx onnxscript transformers numpy safetensors peft
echo "$PWD/.venv/bin/python"
