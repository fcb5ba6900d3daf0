#!/usr/bin/env bash
# Claim: Snapshots of 1.5 GB cost a run of GPT-2 124M that takes one every 10 steps little.
# Topic: Speed
# Quick: one pair of short runs
#
# Installs PyTorch into .venv.
set -euo pipefail
cd "$(dirname "$0")/../.."
python=${ZORSE_PYTHON:-$(tools/python-env.sh | tail -1)}
if [ "${1:-}" = --quick ]; then shift; exec "$python" test/benchmark/snapshot_cost.py --pairs 1 --steps 12 --every 5 --limit 0.06 "$@"; fi
exec "$python" test/benchmark/snapshot_cost.py "$@"
