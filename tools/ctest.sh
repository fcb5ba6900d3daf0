#!/usr/bin/env bash
# Runs the tests of a build folder and says at the end what was not tested on this machine, why, and the command that runs it: tools/ctest.sh FOLDER [options of ctest]
# As many tests run side by side as there are processors; -j N among the options changes that.
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
