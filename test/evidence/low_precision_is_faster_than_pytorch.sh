#!/usr/bin/env bash
# Claim: In bf16 faster than torch.compile under autocast: tokens/s of GPT-2 124M, batch 4 × 256, one CPU device, 1 and 2 threads.
# Topic: Speed
# Quick: 1 thread, one round
#
# Installs PyTorch into .venv.
set -euo pipefail
cd "$(dirname "$0")/../.."
python=${ZORSE_PYTHON:-$(tools/python-env.sh | tail -1)}
if [ "${1:-}" = --quick ]; then exec "$python" test/benchmark/tokens_per_second.py --precision bf16 --limit 1.5 --threads 1 --rounds 1 --steps 4; fi
source test/evidence/figures.bash
figure "" "$python" test/benchmark/tokens_per_second.py --precision bf16 --limit 1.5 --threads 1 --tuned
figure "" "$python" test/benchmark/tokens_per_second.py --precision bf16 --limit 1.5 --threads 2 --tuned
