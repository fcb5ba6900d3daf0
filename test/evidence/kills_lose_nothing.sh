#!/usr/bin/env bash
# Claim: A killed rank, coordinator or launcher loses nothing, at random moments under random plans: the others end within 2 seconds and name the dead, and the resumed run is
#   the unbroken one to the bit. A rank that is stopped for longer than the deadline is lost; for less, nothing happens.
# Topic: Jobs
# Quick: 30 and 12 kills instead of 200 and 100, 4 stops of each kind instead of 20
set -euo pipefail
cd "$(dirname "$0")/../.."
kills=200 tiers=100 stops=20
[ "${1:-}" = --quick ] && kills=30 tiers=12 stops=4
source test/evidence/figures.bash
figure "" /usr/bin/python3 test/e2e/stops.py "$stops"
figure "" /usr/bin/python3 test/e2e/kills.py "$kills"
figure "" /usr/bin/python3 test/e2e/kills.py "$tiers" --tiers
