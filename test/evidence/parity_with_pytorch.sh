#!/usr/bin/env bash
# Claim: One device trains as PyTorch does, by PyTorch's committed numbers: 50 AdamW steps (lr 3e-4, warm-up 10, betas 0.9/0.95, eps 1e-8, decay 0.1, clipping 1.0) and
#   the first step's gradients, GPT and LLaMA.
# Topic: Mathematics
# Quick: whole
set -euo pipefail
cd "$(dirname "$0")/../.."
exec /usr/bin/python3 test/e2e/parity.py
