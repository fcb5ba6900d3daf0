#!/usr/bin/env bash
# Runs the tests of a build folder: tools/ctest.sh FOLDER [options of ctest]
# Prints at the end which tests were skipped on this machine, why, and the command that runs them. Runs one test per CPU in parallel; -j N changes that.
set -euo pipefail
build=$1
shift
report=$(realpath "$build")/Testing/tests.xml
rm -f "$report"
/usr/bin/python3 "$(dirname "$0")/tested.py" "$build"
status=0
ctest --test-dir "$build" -j "$(nproc)" --output-on-failure --output-junit "$report" --test-output-size-passed 100000 "$@" || status=$?
[ ! -f "$report" ] || /usr/bin/python3 "$(dirname "$0")/skipped_tests.py" "$report" "$build"
exit $status
