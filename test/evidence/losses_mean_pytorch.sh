#!/usr/bin/env bash
# Claim: Losses as training code writes them, and random ones over the number of samples, positions, counts and weights, train to PyTorch's losses, gradients and parameters on one device and under two plans
#   with uneven cells, or are refused where samples meet. An evaluation is the loss of its samples as one batch.
# Topic: Mathematics
# Quick: every eighth form, 40 random losses, batches of 6 alone
#
# Installs PyTorch into .venv. Exports are kept in out/loss_forms.
set -euo pipefail
cd "$(dirname "$0")/../.."
every=1 exported=100 count=520 batches=4,6,7,16
[ "${1:-}" = --quick ] && every=8 exported=8 count=40 batches=6
python=${ZORSE_PYTHON:-$(tools/python-env.sh | tail -1)}
source test/evidence/figures.bash
figure "from PyTorch" "$python" test/e2e/loss_forms.py --every $every --random $exported --batches $batches
figure "random" /usr/bin/python3 test/e2e/loss_graphs.py random $count --batches $batches
figure "skipped steps and evaluations" /usr/bin/python3 test/e2e/loss_inputs.py
