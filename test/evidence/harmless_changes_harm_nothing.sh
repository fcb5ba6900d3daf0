#!/usr/bin/env bash
# Claim: A change of a cluster that cannot make training slower does not (another order, all rates doubled, one device more, a site more, faster links; random clusters of 2
#   to 48 devices on 1 to 5 sites).
# Topic: Planner
# Quick: 8 clusters of up to 24 devices
set -euo pipefail
cd "$(dirname "$0")/../.."
bin=${ZORSE_BIN:-build/release/bin}
if [ "${1:-}" = --quick ]; then
  exec "$bin/harmless-changes" --count=8 --devices=24
fi
exec "$bin/harmless-changes" --count=200
