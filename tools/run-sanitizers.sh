#!/usr/bin/env bash
# Every test under sanitizers: tools/run-sanitizers.sh [asan|ubsan|tsan|all] [--fast]
#   asan     AddressSanitizer with leaks, and UndefinedBehaviorSanitizer
#   ubsan    UndefinedBehaviorSanitizer alone: faster, for one question
#   tsan     ThreadSanitizer
#   all      asan, then tsan (the default)
#   --fast   the tests that need no MLIR: runtime, steps, plans and the verifier under asan, the runtime's under tsan. Every change passes it.
# What the settings leave out, and why, stands in cmake/SanitizerDefaults.cpp and docs/sanitizers.md.
set -euo pipefail
cd "$(dirname "$0")/.."
which=all fast=0
for word in "$@"; do
  case "$word" in
    asan | ubsan | tsan | all) which=$word ;;
    --fast) fast=1 ;;
    *) echo "usage: tools/run-sanitizers.sh [asan|ubsan|tsan|all] [--fast]"; exit 2 ;;
  esac
done
tools/install.sh
[ "$which" = all ] && presets=(asan tsan) || presets=("$which")
for preset in "${presets[@]}"; do
  echo "== $preset"
  if [ $fast = 1 ]; then
    label=core
    [ "$preset" = tsan ] && label=runtime
    tools/build.sh "$preset" "$label-tests"
    (cd "build/$preset" && ctest --output-on-failure -L "$label" -LE slow)
  else
    tools/build.sh "$preset"
    (cd "build/$preset" && ctest --output-on-failure)
  fi
done
