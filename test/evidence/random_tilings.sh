#!/usr/bin/env bash
# 200 random tilings in f64 against one device (--quick: 40); prints the compile time of all of them.
set -euo pipefail
cd "$(dirname "$0")/../.."
count=200; [ "${1:-}" = --quick ] && count=40
exec /usr/bin/python3 test/e2e/random_tilings.py $count
