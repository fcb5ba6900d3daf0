#!/usr/bin/env bash
# Claim: Clean under ASan (with leaks), UBSan and TSan: every test; damaged inputs of every kind never crash.
# Topic: Robustness
# Quick: the tests that every change passes (tools/run-sanitizers.sh --fast)
set -euo pipefail
cd "$(dirname "$0")/../.."
fast=()
[ "${1:-}" = --quick ] && fast=(--fast)
log=$(mktemp)
trap 'rm -f "$log"' EXIT
run=() # per sanitizer: how many tests ran
for preset in asan tsan; do
  tools/run-sanitizers.sh $preset "${fast[@]}" | tee "$log"
  run+=("$(sed -n 's/^100% tests passed, 0 tests failed out of //p' "$log")")
done
damaged="no damaged inputs"
if [ ${#fast[@]} -eq 0 ]; then
  ZORSE_BIN=$PWD/build/asan/bin /usr/bin/python3 test/e2e/damaged_files.py 2600 | tee "$log"
  damaged=$(head -1 "$log")
fi
echo "0 reports: ${run[0]} tests under ASan and UBSan, ${run[1]} under TSan; $damaged"
