#!/usr/bin/env bash
# Compiles every model of the repository and every stored input of the importer's fuzzing under ASan and UBSan.
#
#   --quick:   every model once, in full, and every third parameter of the smallest model frozen
#   ZORSE_BIN: folder of zorse-compile and zorse-import (default: build/asan/bin, built here)
#   MODELS:    additional ONNX files
set -euo pipefail
cd "$(dirname "$0")/../.."
quick=0
[ "${1:-}" = --quick ] && quick=1
if [ -z "${ZORSE_BIN:-}" ]; then
  cmake --preset asan >/dev/null
  nice -n 5 ninja -C build/asan zorse-compile zorse-import >/dev/null
  ZORSE_BIN=$PWD/build/asan/bin
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export ZORSE_CACHE=$work/cache
printf 'name: one\nnodes:\n  - name: here\n    devices:\n      - {name: a, kind: cpu, flops_per_second: 10 GFLOP/s, threads: 1}\n' >"$work/one.yaml"
bundles=0 refused=0 findings=0

# "--seq-length 16" for a model with a dynamic sequence length.
sequence_of() {
  local text
  text=$("$ZORSE_BIN/zorse-import" "$1" --seq-length 16 --global-batch-size 4 --quiet 2>&1) || true
  [[ $text == *"the file fixes dimension 1"* ]] || echo --seq-length 16
}

# Exit code 0 is a bundle and exit code 1 an error with a message. Anything else, or output of a sanitizer, is a
# finding.
compile() { # MODEL OPTIONS...
  local code=0
  "$ZORSE_BIN/zorse-compile" "$@" --cluster "$work/one.yaml" --global-batch-size 4 $(sequence_of "$1") --num-threads 1 --quiet -o "$work/bundle.zorse" >"$work/log" 2>&1 || code=$?
  if [ $code -gt 1 ] || grep -qE 'Sanitizer|runtime error:|LLVM ERROR|Assertion|PLEASE submit' "$work/log" || { [ $code = 1 ] && ! grep -q 'error:' "$work/log"; }; then
    findings=$((findings + 1))
    echo "FAIL exit $code: zorse-compile $*"
    head -40 "$work/log"
  elif [ $code = 0 ]; then
    bundles=$((bundles + 1))
  else
    refused=$((refused + 1))
  fi
}

models=(models/small/*.onnx models/small/zoo/*.onnx test/fuzz/corpus/onnx/* test/fuzz/corpus/import/* ${MODELS:-})
for model in "${models[@]}"; do
  compile "$model"
done
frozen=(models/small/mlp-tiny.onnx models/small/zoo/*.onnx)
[ $quick = 1 ] && frozen=(models/small/mlp-tiny.onnx models/small/zoo/sentences.onnx)
[ $quick = 0 ] && frozen+=(models/small/gpt.onnx models/small/llama.onnx)
count=0
for model in "${frozen[@]}"; do
  for name in $("$ZORSE_BIN/zorse-import" "$model" $(sequence_of "$model") --global-batch-size 4 --quiet --weights 2>/dev/null | cut -d' ' -f1 || true); do
    count=$((count + 1))
    [ $quick = 1 ] && [ "$model" != models/small/mlp-tiny.onnx ] && [ $((count % 3)) != 0 ] && continue
    compile "$model" "--freeze=$name"
  done
done
echo "$((bundles + refused + findings)) compilations of ${#models[@]} models: $bundles bundles, $refused errors, $findings findings"
[ $findings = 0 ] && [ $bundles -ge 30 ]
