#!/usr/bin/env bash
# From a clone to a trained model: installs missing packages, builds, compiles a small GPT for four
# unequal CPU devices and trains it.
#
#   tools/quickstart.sh [STEPS]     default 150
set -euo pipefail
cd "$(dirname "$0")/.."
steps=${1:-150}
started=$SECONDS
say() { printf '\n\033[1m%s\033[0m\n' "$*"; }

say "1/4  Packages"
tools/install.sh
say "2/4  Build"
tools/build.sh release zorse-tools
bin=build/release/bin
out=out/quickstart
mkdir -p "$out"

say "3/4  Compile a 0.5-million-parameter GPT for four unequal CPU devices in two stages"
text="$out/text.txt"
cat /usr/share/common-licenses/{GPL-3,LGPL-2.1,GPL-2,Apache-2.0,MPL-2.0,GFDL-1.3} 2>/dev/null >"$text" || true
[ -s "$text" ] || cat docs/*.md README.md >"$text"
# The last tenth of the text is used for evaluation.
bytes=$(stat -c %s "$text")
head -c $((bytes * 9 / 10)) "$text" >"$out/train.txt"
tail -c $((bytes / 10)) "$text" >"$out/held-back.txt"
"$bin/zorse-compile" models/small/gpt-bytes.onnx --cluster models/clusters/four-unequal-cpus.yaml --plan models/clusters/four-unequal-cpus.gpt-bytes.plan.json \
  --global-batch-size 16 --seq-length 64 --optimizer adamw --lr 2e-3 --warmup-steps 20 --lr-scheduler-type cosine --max-grad-norm 1.0 -o "$out/gpt.zorse"
"$bin/zorse-inspect" "$out/gpt.zorse" --plan

say "4/4  Train on text"
"$bin/zorse-run" "$out/gpt.zorse" --data "$out/train.txt" --shuffle-seed=1 --max-steps "$steps" --eval-data "$out/held-back.txt" --trace "$out/trace.json" \
  --metrics-file "$out/metrics.jsonl" --save-weights "$out/gpt.safetensors"

say "Done in $((SECONDS - started)) s"
echo "  trace:       $out/trace.json   (open at https://ui.perfetto.dev)"
echo "  checkpoint:  $out/gpt.safetensors   (the PyTorch model's parameter names)"
echo "  metrics:     $out/metrics.jsonl"
