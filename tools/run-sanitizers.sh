#!/usr/bin/env bash
# The suite under sanitizers: tools/run-sanitizers.sh [asan|tsan|all] [--fast]
set -euo pipefail
cd "$(dirname "$0")/.."
which=${1:-all}
shift || true
for preset in asan tsan; do
  if [ "$which" = all ] || [ "$which" = "$preset" ]; then
    echo "== $preset"
    tools/run-tests.sh --preset "$preset" "$@"
  fi
done
