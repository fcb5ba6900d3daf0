#!/usr/bin/env bash
# Claim: One-way and two-way cuts of the network between random nodes of a job at random moments: outages of up to 2 s under a deadline of 3 s are survived; longer ones end the job with exit code 2 and
#   name who was not heard, or it starts again and comes to its end.
# Topic: Jobs
# Quick: 8 cuts instead of 100
#
# Needs root (network namespaces); exit code 77 where they cannot be made.
set -euo pipefail
cd "$(dirname "$0")/../.."
trials=100
[ "${1:-}" = --quick ] && trials=8
exec /usr/bin/python3 test/e2e/network_cuts.py --trials "$trials"
