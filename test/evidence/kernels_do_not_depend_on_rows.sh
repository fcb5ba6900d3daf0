#!/usr/bin/env bash
# Claim: Kernels do not depend on row counts: cells of 1, 2, 3, 4 and 7 rows have the kernels of one row count.
# Topic: Compiler
# Quick: whole
set -euo pipefail
cd "$(dirname "$0")/../.."
exec /usr/bin/python3 test/e2e/bundles.py kernels
