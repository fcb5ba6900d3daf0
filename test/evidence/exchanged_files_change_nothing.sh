#!/usr/bin/env bash
# Claim: Files that somebody exchanges between the look at them and their use change nothing: a run with --expect executes the code of that digest or ends with an error, and under umask 002 in a
#   TMPDIR that a group shares, no other user of the group gets code into a bundle.
# Topic: Robustness
# Quick: 6 of each instead of 50
set -euo pipefail
cd "$(dirname "$0")/../.."
source test/evidence/figures.bash
count=50
[ "${1:-}" = --quick ] && count=6
figure "" /usr/bin/python3 test/e2e/exchanges.py swaps $count
figure "shared TMPDIR" /usr/bin/python3 test/e2e/exchanges.py folders $count
