#!/usr/bin/env bash
# Claim: A bundle with a flipped bit is refused before anything runs. With its digest made right again it is refused, gives the same bits, or differs in what a bundle is
#   believed (weights, bodies, a few numbers of the summary: docs/bundle.md). It never crashes or hangs.
# Topic: Robustness
# Quick: 300 flips instead of 6,000
set -euo pipefail
cd "$(dirname "$0")/../.."
count=6000
if [ "${1:-}" = --quick ]; then count=300; fi
exec /usr/bin/python3 test/e2e/flipped_bundles.py $count
