#!/usr/bin/env bash
# Claim: A resumed run is the unbroken one in every bit: stopped, interrupted, killed; SGD with momentum, AdamW, dropout, shuffling, schedule, clipping, skipped steps;
#   threads and processes.
# Topic: Snapshots
# Quick: two cases
set -euo pipefail
cd "$(dirname "$0")/../.."
exec /usr/bin/python3 test/e2e/resume.py exact "$@"
