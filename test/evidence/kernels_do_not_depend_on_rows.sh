#!/usr/bin/env bash
# Cells of 1, 2, 3, 4 and 7 rows share the kernels of one row count.
set -euo pipefail
cd "$(dirname "$0")/../.."
exec /usr/bin/python3 test/e2e/bundles.py kernels
