#!/usr/bin/env bash
# Claim: Zorse trains GPT-2 124M in bf16 at least 1.15 times as fast as torch.compile under autocast on a processor with AVX512-BF16 (tokens/s, batch 4 × 256, one CPU device, 1 and
#   2 threads, alternating runs). It prints the ratio to PyTorch with a tuned allocator, too.
# Topic: Speed
# Quick: 1 thread, one round
#
# Installs PyTorch into .venv.
set -euo pipefail
cd "$(dirname "$0")/../.."
grep -q -w avx512_bf16 /proc/cpuinfo || { echo "SKIP: this processor has no AVX512-BF16; without it neither side has products in bf16"; exit 77; }
python=${ZORSE_PYTHON:-$(tools/python-env.sh | tail -1)}
if [ "${1:-}" = --quick ]; then exec "$python" test/benchmark/tokens_per_second.py --precision bf16 --limit 1.15 --threads 1 --rounds 1 --steps 4; fi
source test/evidence/figures.bash
figure "1 thread" "$python" test/benchmark/tokens_per_second.py --precision bf16 --limit 1.15 --threads 1 --tuned
figure "2 threads" "$python" test/benchmark/tokens_per_second.py --precision bf16 --limit 1.15 --threads 2 --tuned
