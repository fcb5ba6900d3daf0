#!/usr/bin/env bash
# Claim: Every fault of docs/faults.md is made and ends as documented: signals, disks that fill or fail, files that shrink, damaged snapshots, wrong secrets, ranks that
#   differ, numbers that are not finite, too little memory, a kernel that hangs, a lost network.
# Topic: Jobs
# Quick: one of each kind
set -euo pipefail
cd "$(dirname "$0")/../.."
cases=()
[ "${1:-}" = --quick ] && cases=(sigterm_to_the_launcher full_disk truncated_data damaged_snapshots wrong_secret ranks_that_differ not_finite hung_body lost_network)
exec /usr/bin/python3 test/e2e/faults.py "${cases[@]}"
