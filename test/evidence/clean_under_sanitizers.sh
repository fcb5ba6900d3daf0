#!/usr/bin/env bash
# The suite under ASan and UBSan (leaks included), thousands of damaged inputs under them, and the runtime under TSan.
#   --quick: unit and lit tests, wrong inputs and 130 damaged ones under ASan and UBSan; the runtime under TSan
set -euo pipefail
cd "$(dirname "$0")/../.."
count=2600 fast=()
[ "${1:-}" = --quick ] && count=130 fast=(--fast)
tools/run-sanitizers.sh asan "${fast[@]}"
export ZORSE_BIN=$PWD/build/asan/bin
[ ${#fast[@]} -eq 0 ] || /usr/bin/python3 test/e2e/bad_input.py
/usr/bin/python3 test/e2e/damaged_files.py $count | tee build/asan/damaged.txt
unset ZORSE_BIN
tools/run-sanitizers.sh tsan
tests=$(cd build/asan && ctest -N ${fast[@]:+-LE slow} | sed -n 's/^Total Tests: //p')
echo "0 reports: $tests tests under ASan and UBSan, $(head -1 build/asan/damaged.txt), the runtime's tests and 7 plans under TSan"
