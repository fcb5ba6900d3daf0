#!/usr/bin/env bash
# Claim: In f16 an overflow on one device of many, also in consecutive steps with the next already submitted, skips the step and halves the scale on every device alike, changes
#   no bit of the state, and leaves what one device would be left with (1e-9), in 1,000 random schedules under four plans.
# Topic: Mathematics
# Quick: 80 schedules instead of 1000
set -euo pipefail
cd "$(dirname "$0")/../.."
count=1000; [ "${1:-}" = --quick ] && count=80
exec /usr/bin/python3 test/e2e/loss_scaling.py $count
