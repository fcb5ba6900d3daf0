#!/usr/bin/env bash
# Claim: Every compile compares the imported loss with the file's own nodes by numbers, in every division of a few samples; mistakes in factors and in operations of the loss are found: each one that
#   changes it.
# Topic: Mathematics
# Quick: without GPT-2 124M
#
# Installs PyTorch into .venv to make GPT-2.
set -euo pipefail
cd "$(dirname "$0")/../.."
source test/evidence/figures.bash
mistakes() {
  local log
  log=$(mktemp)
  build/release/bin/zorse-import-test --gtest_filter='HeadCheck.*' --gtest_brief=1 | tee "$log"
  sed -n 's/^\(mistakes in .*\)$/\1/p' "$log" | paste -sd ';' | sed 's/;/; /g'
  rm -f "$log"
}
models=(models/small/gpt.onnx:64 models/small/llama.onnx:64 models/small/zoo/weighted.onnx models/small/configurations/own-moe.onnx models/small/breadth/images.onnx)
if [ "${1:-}" != --quick ]; then
  python=${ZORSE_PYTHON:-$(tools/python-env.sh | tail -1)}
  mkdir -p out
  [ -f out/gpt2-124m.onnx ] || "$python" models/make_benchmark.py gpt2-124m out/gpt2-124m.onnx
  models+=(out/gpt2-124m.onnx:256)
fi
figure "" mistakes
figure "cost" /usr/bin/python3 test/benchmark/head_check_cost.py "${models[@]}"
