#!/usr/bin/env bash
# Claim: Random tilings in f64 train like one device: dropout on, uneven labels, tied weights, half of them with clipping; compiling all of them takes seconds.
# Topic: Mathematics
# Quick: 40 tilings instead of 200
set -euo pipefail
cd "$(dirname "$0")/../.."
count=200; [ "${1:-}" = --quick ] && count=40
exec /usr/bin/python3 test/e2e/random_tilings.py $count
