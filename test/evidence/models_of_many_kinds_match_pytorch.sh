#!/usr/bin/env bash
# Claim: Small Hugging Face configurations of language, vision, audio and encoder-decoder models, and own ResNet-, ConvNeXt-, U-Net-, LSTM- and mixture-of-experts-style
#   modules train to PyTorch's losses and first gradients on one device and under two random plans each.
# Topic: Exports
# Quick: eight models
#
# Installs PyTorch into .venv.
set -euo pipefail
cd "$(dirname "$0")/../.."
names=() least=100
[ "${1:-}" = --quick ] && names=(llama bert vit wav2vec2 t5 mixtral own-resnet own-moe) least=8
python=${ZORSE_PYTHON:-$(tools/python-env.sh | tail -1)}
exec "$python" test/e2e/breadth_table.py --least $least "${names[@]}"
