#!/usr/bin/env bash
# Every wrong input ends with an error that names the place.
set -euo pipefail
cd "$(dirname "$0")/../.."
exec /usr/bin/python3 test/e2e/bad_input.py
