#!/usr/bin/env bash
# Changing a sample leaves every other bit-equal; fixed-batch exports train with 7 rows.
set -euo pipefail
cd "$(dirname "$0")/../.."
exec /usr/bin/python3 test/e2e/rows.py
