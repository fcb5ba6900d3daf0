#!/usr/bin/env bash
# The planner against all layouts of random small instances and against all tilings and task orders of tiny ones. --quick: every eighth instance.
# Computing the optima anew: test/optimality/README.md.
set -euo pipefail
cd "$(dirname "$0")/../.."
every=1
[ "${1:-}" = --quick ] && every=8
status=0
build/release/bin/compare-optima test/optimality/optima.jsonl --every=$every || status=1
if [ -s test/optimality/tilings.jsonl ]; then
  build/release/bin/compare-tilings test/optimality/tilings.jsonl --every=$every || status=1
fi
exit $status
