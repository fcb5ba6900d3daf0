#!/usr/bin/env bash
# Claim: One token stream in every format, shuffling, epochs, checkpoints and evaluation, whatever the plan.
# Topic: Mathematics
# Quick: whole
set -euo pipefail
cd "$(dirname "$0")/../.."
exec /usr/bin/python3 test/e2e/data.py
