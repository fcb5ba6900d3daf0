#!/usr/bin/env bash
# Claim: Changes of a cluster that cannot make training slower do not: random clusters of 2 to 48 devices on 1 to 5 sites, with another order of everything, all rates by two, an equal device more, a
#   very slow device more, a site more, faster links. The same plan's time for another order, half of it to the bit for twice the rates; else the plan chosen for the new cluster is not slower there
#   than the old one.
# Topic: Planner
# Quick: 8 clusters of up to 24 devices
set -euo pipefail
cd "$(dirname "$0")/../.."
bin=${ZORSE_BIN:-build/release/bin}
if [ "${1:-}" = --quick ]; then
  exec "$bin/harmless-changes" --count=8 --devices=24
fi
exec "$bin/harmless-changes" --count=200
