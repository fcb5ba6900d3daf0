#!/usr/bin/env bash
# Claim: Random tilings train like one device, to 1e-9, with the roundings of bf16 in f64 arithmetic: no plan adds, drops or moves a rounding. Half of them split the
#   backward; models that are no language models are among them.
# Topic: Mathematics
# Quick: 40 tilings instead of 1000
set -euo pipefail
cd "$(dirname "$0")/../.."
count=1000; [ "${1:-}" = --quick ] && count=40
exec /usr/bin/python3 test/e2e/random_tilings.py $count 0 f64:bf16
