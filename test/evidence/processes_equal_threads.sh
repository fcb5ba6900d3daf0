#!/usr/bin/env bash
# One process per device over Gloo gives the bits of threads of one process: 24 plans, then 12 with every transfer stretched at random. --quick: 6 and 3.
set -euo pipefail
cd "$(dirname "$0")/../.."
plain=24 delayed=12
[ "${1:-}" = --quick ] && plain=6 delayed=3
/usr/bin/python3 test/e2e/processes.py "$plain"
echo "with random delays:"
/usr/bin/python3 test/e2e/processes.py "$delayed" --delays
