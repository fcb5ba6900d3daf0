#!/usr/bin/env bash
# Claim: A compiler or an exporter that is killed at a random moment, most often while it writes, leaves the old bundle, weights or model, or the new one, whole;
#   the next one removes what a killed one has left.
# Topic: Robustness
# Quick: 40 kills instead of 200
set -euo pipefail
cd "$(dirname "$0")/../.."
count=200
[ "${1:-}" = --quick ] && count=40
exec /usr/bin/python3 test/e2e/killed_outputs.py $count
