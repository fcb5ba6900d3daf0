#!/usr/bin/env bash
# Claim: Random tilings in f64 train like one device, half of them with a split backward: dropout on, uneven labels, tied weights, half of them with clipping; models that are no language models besides.
# Topic: Mathematics
# Quick: 40 tilings instead of 200
set -euo pipefail
cd "$(dirname "$0")/../.."
count=200; [ "${1:-}" = --quick ] && count=40
exec /usr/bin/python3 test/e2e/random_tilings.py $count
