#!/usr/bin/env bash
# Claim: Predicted and simulated step times are true on unequal CPU devices made of this machine: mean error of the prediction at most 5 %, of the replay at most 3 %,
#   pairs of plans that differ by more than 8 % ranked right.
# Topic: Predictions
# Quick: three devices that together take 0.6 cores, six plans, one run of each and the median of three where the replay is off by more than 3 %
#
# predictions_are_true.sh [--quick] [options of prediction.py]. Whole: about 20 minutes; nothing else may run then. test/benchmark/timelines.py shows where the time goes.
set -euo pipefail
cd "$(dirname "$0")/../.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python=${ZORSE_PYTHON:-$(tools/python-env.sh | tail -1)}
if [[ "${1:-}" == --quick ]]; then
  "$python" models/make_benchmark.py gpt-4x256 "$folder/model.onnx" 2>/dev/null
  /usr/bin/python3 test/benchmark/prediction.py "$folder/model.onnx" --shares a=0.30,b=0.20,c=0.10 --period 10 --batch 48 --repeat 1 --again 2 --steps 2 --profile-seconds 15 --keep "$folder/work" \
    --only data-proportional,data-equal,pipeline-by-speed,fastest-then-others,pipeline-even-layers --searched searched-1f1b --least-periods 10 "${@:2}"
else
  "$python" models/make_benchmark.py gpt-4x384 "$folder/model.onnx" 2>/dev/null
  /usr/bin/python3 test/benchmark/prediction.py "$folder/model.onnx" --shares a=0.72,b=0.54,c=0.36,d=0.18 --period 6 --batch 64 --repeat 5 --steps 2 --keep "$folder/work" \
    --only data-proportional,data-equal,data-without-slowest,pipeline-by-speed,pipeline-gpipe,pipeline-reversed,pipeline-even-layers,fastest-then-others,others-then-fastest,two-mixed-stages,two-pipelines \
    --searched searched,searched-1f1b --least-plans 10 "$@"
fi
