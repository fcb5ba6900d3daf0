#!/usr/bin/env bash
# tokens/s of one CPU device against PyTorch eager and torch.compile, GPT-2 124M, 1 and 2 threads (installs PyTorch into .venv). --quick: 1 thread, one round.
set -euo pipefail
cd "$(dirname "$0")/../.."
python=${ZORSE_PYTHON:-$(tools/python-env.sh | tail -1)}
if [ "${1:-}" = --quick ]; then exec "$python" test/benchmark/tokens_per_second.py --threads 1 --rounds 1 --steps 4; fi
"$python" test/benchmark/tokens_per_second.py --threads 1 --tuned
exec "$python" test/benchmark/tokens_per_second.py --threads 2 --tuned
