#!/usr/bin/env bash
# Claim: Samples do not see each other; exports with 1, 2 and 4 = heads rows train with 7 rows in cells of 4, 2 and 1.
# Topic: Mathematics
# Quick: whole
set -euo pipefail
cd "$(dirname "$0")/../.."
exec /usr/bin/python3 test/e2e/rows.py
