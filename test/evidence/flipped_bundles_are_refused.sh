#!/usr/bin/env bash
# Claim: Single bits flipped in every file of three bundles (one device, pipelines on three devices, a split backward): as they are, all are refused before anything runs; with the digest made right
#   again they are refused, or give the same bits, or are what a bundle is believed (weights, bodies, a few numbers of the summary: docs/bundle.md). Never a crash, never a hang.
# Topic: Robustness
# Quick: 300 flips instead of 6,000
set -euo pipefail
cd "$(dirname "$0")/../.."
count=6000
if [ "${1:-}" = --quick ]; then count=300; fi
exec /usr/bin/python3 test/e2e/flipped_bundles.py $count
