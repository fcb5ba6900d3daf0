#!/usr/bin/env bash
# Predicted and simulated step times against executed ones, on unequal CPU devices made of this machine.   predictions_are_true.sh [--quick] [options of prediction.py]
# Whole: about 40 minutes on an otherwise idle machine. --quick: a few minutes, three devices that together take 0.6 cores, one run of each plan.
set -euo pipefail
cd "$(dirname "$0")/../.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python=${ZORSE_PYTHON:-$(tools/python-env.sh | tail -1)}
if [[ "${1:-}" == --quick ]]; then
  "$python" models/make_benchmark.py gpt-4x256 "$folder/model.onnx"
  /usr/bin/python3 test/benchmark/prediction.py "$folder/model.onnx" --shares a=0.30,b=0.20,c=0.10 --batch 64 --repeat 1 --steps 2 --keep "$folder/work" "${@:2}"
else
  "$python" models/make_benchmark.py gpt-6x384 "$folder/model.onnx"
  /usr/bin/python3 test/benchmark/prediction.py "$folder/model.onnx" --shares a=0.72,b=0.54,c=0.36,d=0.18 --batch 64 --repeat 5 --steps 2 --keep "$folder/work" "$@"
fi
