#!/usr/bin/env bash
# One device against PyTorch's committed numbers: 50 AdamW steps and the first step's gradients, GPT and LLaMA.
set -euo pipefail
cd "$(dirname "$0")/../.."
exec /usr/bin/python3 test/e2e/parity.py
