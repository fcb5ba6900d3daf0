#!/usr/bin/env bash
# tokens/s of the chosen plan on four unequal devices made of this machine (CPU quotas of 72, 54, 36 and 18 % of a core; needs root and cgroup v1), against PyTorch's DDP, FSDP2 and
# pipelining on the same quotas, and against the sum of the devices' own speeds (installs PyTorch into .venv). About 10 minutes on an otherwise idle machine; --quick: one round, 5 minutes.
set -euo pipefail
cd "$(dirname "$0")/../.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export ZORSE_PYTHON=${ZORSE_PYTHON:-$(tools/python-env.sh | tail -1)}
"$ZORSE_PYTHON" models/make_benchmark.py gpt-6x384 "$folder/model.onnx"
"$ZORSE_PYTHON" test/benchmark/worth.py "$folder/model.onnx" --model gpt-6x384 --keep "$folder/work" "$@"
