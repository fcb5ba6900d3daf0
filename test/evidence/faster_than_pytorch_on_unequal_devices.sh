#!/usr/bin/env bash
# Claim: Faster than PyTorch's DDP, FSDP2 and pipelining on four unequal CPU devices (quotas of 72, 54, 36 and 18 % of a core), equal and proportional shares: 1.8 times
#   the best of them, and 0.85 of the sum of the devices' own speeds.
# Topic: Speed
# Quick: none, because a round takes five minutes
#
# Needs root and control groups; installs PyTorch into .venv. About 10 minutes on an otherwise idle machine; --quick: one round, 5 minutes.
set -euo pipefail
cd "$(dirname "$0")/../.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export ZORSE_PYTHON=${ZORSE_PYTHON:-$(tools/python-env.sh | tail -1)}
"$ZORSE_PYTHON" models/make_benchmark.py gpt-6x384 "$folder/model.onnx"
"$ZORSE_PYTHON" test/benchmark/worth.py "$folder/model.onnx" --model gpt-6x384 --keep "$folder/work" "$@"
