#!/usr/bin/env bash
# Claim: A job survives network outages of up to two thirds of its deadline (3, 10, 30 and 60 s; one-way and two-way, between random nodes). Longer ones end it within 3 s
#   after the deadline with exit code 2 and the name of who was not heard, or it starts again and comes to its end.
# Topic: Jobs
# Quick: 8 cuts under deadlines of 3 and 10 s instead of 100
#
# Needs root (network namespaces); exit code 77 where they cannot be made.
set -euo pipefail
cd "$(dirname "$0")/../.."
words=(--trials 100)
[ "${1:-}" = --quick ] && words=(--trials 8 --deadlines 3,10 --at-once 8)
exec /usr/bin/python3 test/e2e/network_cuts.py "${words[@]}"
