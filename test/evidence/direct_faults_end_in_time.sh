#!/usr/bin/env bash
# Claim: A rank of GPUs that exchange directly is killed, stopped, hangs in an operation of NCCL or hears of an error from it at 50 random moments: every rank ends within the deadline,
#   whatever stands on streams.
# Topic: GPUs
# Quick: 8 moments instead of 50
set -euo pipefail
cd "$(dirname "$0")/../.."
count=50
[ "${1:-}" = --quick ] && count=8
exec /usr/bin/python3 test/e2e/direct_faults.py $count
