#!/usr/bin/env bash
# Two runs and two compilations of one model give the same bits.
set -euo pipefail
cd "$(dirname "$0")/../.."
exec /usr/bin/python3 test/e2e/determinism.py
