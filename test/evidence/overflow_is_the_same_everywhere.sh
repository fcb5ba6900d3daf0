#!/usr/bin/env bash
# Claim: An f16 overflow on one device skips the step and halves the loss scale on every device alike, changes no bit of the state, and leaves what one device would be left
#   with (1e-9), in 1,000 random schedules under four plans.
# Topic: Mathematics
# Quick: 80 schedules instead of 1000
set -euo pipefail
cd "$(dirname "$0")/../.."
count=1000; [ "${1:-}" = --quick ] && count=80
exec /usr/bin/python3 test/e2e/loss_scaling.py $count
