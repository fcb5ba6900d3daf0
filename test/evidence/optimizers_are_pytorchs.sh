#!/usr/bin/env bash
# Claim: SGD, Adam, AdamW, decay rules and schedules are those of torch.optim; models that are no language models (regression, patches, masks, several inputs) train as in PyTorch. In f64, by PyTorch's committed numbers.
# Topic: Mathematics
# Quick: whole
set -euo pipefail
cd "$(dirname "$0")/../.."
source test/evidence/figures.bash
figure optimizers /usr/bin/python3 test/e2e/optimizers.py
figure "other models" /usr/bin/python3 test/e2e/zoo.py
