#!/usr/bin/env bash
# Claim: An export trains what the module trains, or is refused by the name of what differs: planted losses of every kind by both exporters, random modules compared once more at
#   other batches, gradients at kinks and of rows that a mask hides, and a comparison that costs little beside the export.
# Topic: Exports
# Quick: each kind by one exporter, 40 random modules instead of 400, without GPT-2 124M
#
# Installs PyTorch into .venv. SEED chooses the random modules.
set -euo pipefail
cd "$(dirname "$0")/../.."
source test/evidence/figures.bash
python=${ZORSE_PYTHON:-$(tools/python-env.sh | tail -1)}
count=400; [ "${1:-}" = --quick ] && count=40
figure "kinds" "$python" test/e2e/export_check.py "$@"
figure "kinks" "$python" test/e2e/kinks.py
figure "masked rows" "$python" test/e2e/masked_rows.py
figure "random" "$python" test/e2e/export_random.py --count $count ${SEED:+--seed $SEED}
figure "cost" "$python" test/e2e/export_cost.py "$@"
