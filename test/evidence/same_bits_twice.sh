#!/usr/bin/env bash
# Claim: Two runs, and two compilations with 1 and 2 threads, give the same bits.
# Topic: Mathematics
# Quick: whole
set -euo pipefail
cd "$(dirname "$0")/../.."
exec /usr/bin/python3 test/e2e/determinism.py
