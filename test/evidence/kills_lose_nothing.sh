#!/usr/bin/env bash
# 200 kills at random moments of random ranks under random plans: the others end within 2 seconds and name the dead, the resumed run is the unbroken one to the bit. Then ranks that are
# stopped for longer than the deadline (lost) and for less (nothing happens), 20 of each kind. --quick: 30 kills, 4 stops of each kind.
set -euo pipefail
cd "$(dirname "$0")/../.."
kills=200 stops=20
[ "${1:-}" = --quick ] && kills=30 stops=4
/usr/bin/python3 test/e2e/stops.py "$stops"
/usr/bin/python3 test/e2e/kills.py "$kills"
