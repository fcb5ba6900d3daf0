#!/usr/bin/env bash
# Claim: Files that bring their own training (ONNX's training_info, onnxruntime's training artifacts) train as they say: trained parameters, optimizer and loss are theirs, and what is not
#   understood is named.
# Topic: Exports
# Quick: whole
set -euo pipefail
cd "$(dirname "$0")/../.."
exec /usr/bin/python3 test/e2e/own_training.py
