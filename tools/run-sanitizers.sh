#!/usr/bin/env bash
# Runs every test under sanitizers: tools/run-sanitizers.sh [asan|ubsan|tsan|all] [--fast]
#   asan     AddressSanitizer with leak detection, and UndefinedBehaviorSanitizer
#   ubsan    UndefinedBehaviorSanitizer only: faster
#   tsan     ThreadSanitizer
#   all      asan, then tsan (the default)
#   --fast   only a few tests that need no MLIR and few libraries: readers of bundles and state under asan; executor, transport and control under tsan. Required for every change.
# cmake/SanitizerDefaults.cpp and docs/internals/testing.md describe what the settings disable, and why.
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
    [ "$preset" = tsan ] && label=tsan-fast || label=asan-fast
    tools/build.sh "$preset" "$label"
    tools/ctest.sh "build/$preset" -L "$label" -LE slow
  else
    tools/build.sh "$preset"
    tools/ctest.sh "build/$preset"
  fi
done
