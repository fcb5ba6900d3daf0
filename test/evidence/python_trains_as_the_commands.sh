#!/usr/bin/env bash
# Claim: Training from Python leaves the bits of the commands, calls back after every step, ends when told to, and says errors in the tools' words; a PyTorch module gets its trained weights.
# Topic: Getting started
# Quick: whole
set -euo pipefail
cd "$(dirname "$0")/../.."
source test/evidence/figures.bash
figure "" /usr/bin/python3 test/e2e/python_package.py
figure "PyTorch modules" /usr/bin/python3 test/e2e/python_package.py --torch
