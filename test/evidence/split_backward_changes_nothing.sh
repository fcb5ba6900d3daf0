#!/usr/bin/env bash
# Plans that split the backward (B and W) train like one device that does not, in threads and in processes (--quick: fewer random tilings).
set -euo pipefail
cd "$(dirname "$0")/../.."
count=200
[ "${1:-}" = --quick ] && count=24
exec /usr/bin/python3 test/e2e/split_backward.py $count --processes
