#!/usr/bin/env bash
# From a clone to a trained model: installs missing packages, builds, measures this machine, plans
# and compiles a small GPT for four unequal CPU devices, and trains it.
#
#   tools/quickstart.sh [STEPS]     default 150
set -euo pipefail
cd "$(dirname "$0")/.."
steps=${1:-150}
started=$SECONDS
say() { printf '\n\033[1m%s\033[0m\n' "$*"; }

say "1/5  Packages"
tools/install.sh
say "2/5  Build"
tools/build.sh release zorse-tools
bin=build/release/bin
out=out/quickstart
mkdir -p "$out"

text="$out/text.txt"
cat /usr/share/common-licenses/{GPL-3,LGPL-2.1,GPL-2,Apache-2.0,MPL-2.0,GFDL-1.3} 2>/dev/null >"$text" || true
[ -s "$text" ] || cat README.md CONTRIBUTING.md LICENSE >"$text"
# The last tenth of the text is used for evaluation.
bytes=$(stat -c %s "$text")
head -c $((bytes * 9 / 10)) "$text" >"$out/train.txt"
tail -c $((bytes / 10)) "$text" >"$out/held-out.txt"
model=(models/small/gpt-bytes.onnx --cluster models/clusters/four-unequal-cpus.yaml --global-batch-size 16 --seq-length 64
  --optimizer adamw --lr 2e-3 --warmup-steps 20 --lr-scheduler-type cosine --max-grad-norm 1.0 --with-generation --quiet)
# Four devices on the cores of this machine: each one is slowed down to its share of a core.
if [ "$(nproc)" -gt 1 ]; then shares=(big=0.8 middle=0.6 small0=0.2 small1=0.2); else shares=(big=0.4 middle=0.3 small0=0.1 small1=0.1); fi
slow=()
for share in "${shares[@]}"; do slow+=(--throttle "$share"); done

say "3/5  Measure four unequal CPU devices of this machine: ${shares[*]} of a core"
"$bin/zorse-compile" "${model[@]}" --plan models/clusters/four-unequal-cpus.gpt-bytes.plan.json -o "$out/unmeasured.zorse"
"$bin/zorse-profile" "$out/unmeasured.zorse" "${slow[@]}" --spawn --batch-sizes 1,2,4 --max-seconds 10 -o "$out/profile.json" --quiet
rm -rf "$out/unmeasured.zorse"

say "4/5  Plan and compile a 0.5-million-parameter GPT with the measured times"
"$bin/zorse-compile" "${model[@]}" --profile "$out/profile.json" -o "$out/gpt.zorse"
"$bin/zorse-inspect" "$out/gpt.zorse" --plan

say "5/5  Train on text"
"$bin/zorse-run" "$out/gpt.zorse" --data "$out/train.txt" --shuffle-seed=1 --max-steps "$steps" --eval-data "$out/held-out.txt" "${slow[@]}" --spawn \
  --generate-interval "$steps" --max-new-tokens 120 --prompt "text:The license " --temperature 0.6 \
  --trace "$out/trace.json" --metrics-file "$out/metrics.jsonl" --html-report "$out/run.html" --save-weights "$out/gpt.safetensors"

say "Done in $((SECONDS - started)) s"
echo "  report:   $out/run.html   (losses, and where the time went)"
echo "  trace:    $out/trace.json   (open at https://ui.perfetto.dev)"
echo "  weights:  $out/gpt.safetensors   (the PyTorch model's parameter names)"
echo "  metrics:  $out/metrics.jsonl"
echo "Next: train your own PyTorch model (docs/get-started/your-model.md) on your own devices (docs/get-started/your-cluster.md)."
