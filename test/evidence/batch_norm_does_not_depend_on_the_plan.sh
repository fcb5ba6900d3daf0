#!/usr/bin/env bash
# Claim: Batch norm by statistics of groups of samples trains to PyTorch's losses, running statistics and evaluation, on one device where a group is the batch and as under
#   data parallelism where it is a part of it, whatever the plan.
# Topic: Mathematics
# Quick: whole
set -euo pipefail
cd "$(dirname "$0")/../.."
exec /usr/bin/python3 test/e2e/batch_norm.py
