#!/usr/bin/env bash
# Under sanitizers: tools/run-sanitizers.sh [asan|tsan|all] [--fast]
#   asan   every test, everything instrumented: AddressSanitizer with leaks, and UndefinedBehaviorSanitizer
#   tsan   what has threads: the runtime's tests, and zorse-run on the plans of test/e2e/threads.py (compiled by the release zorse-compile: MLIR's
#          libraries are not instrumented)
# What is suppressed, and why, stands in cmake/SanitizerDefaults.cpp.
set -euo pipefail
cd "$(dirname "$0")/.."
which=${1:-all}
shift || true
case "$which" in
  asan | tsan | all) ;;
  *) echo "usage: tools/run-sanitizers.sh [asan|tsan|all] [--fast]"; exit 2 ;;
esac
if [ "$which" != tsan ]; then
  echo "== asan"
  tools/run-tests.sh --preset asan "$@"
fi
if [ "$which" != asan ]; then
  echo "== tsan"
  tools/install.sh
  tools/build.sh release zorse-compile
  tools/build.sh tsan zorse-run runtime_device_cpu_test runtime_transport_test runtime_state_test runtime_data_test runtime_executor_test runtime_program_test
  (cd build/tsan && ctest --output-on-failure -R '^runtime_')
  ZORSE_BIN=$PWD/build/release/bin ZORSE_RUN=$PWD/build/tsan/bin/zorse-run /usr/bin/python3 test/e2e/threads.py
fi
