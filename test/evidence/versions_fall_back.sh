#!/usr/bin/env bash
# Claim: Where ranks have other versions of NCCL, one that is too old, or one GPU twice, the job runs the staged programs with a warning that names ranks, versions and the predicted cost, and leaves
#   the same bytes; wrong bytes in the self-test of a group are an error that names it.
# Topic: GPUs
# Quick: whole
set -euo pipefail
cd "$(dirname "$0")/../.."
exec /usr/bin/python3 test/e2e/direct.py --fall-back
