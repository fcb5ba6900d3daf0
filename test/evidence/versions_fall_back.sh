#!/usr/bin/env bash
# Claim: Ranks whose NCCL versions differ or are too old, or that share a GPU, run the staged programs with a warning that names ranks, versions and the predicted cost, and
#   leave the same bytes. Wrong bytes in a group's self-test are an error that names the group.
# Topic: GPUs
# Quick: whole
set -euo pipefail
cd "$(dirname "$0")/../.."
exec /usr/bin/python3 test/e2e/direct.py --fall-back
