#!/usr/bin/env bash
# Configures (once) and builds one preset: tools/build.sh [preset] [targets...]; default preset:
# release.
set -euo pipefail
cd "$(dirname "$0")/.."
preset=${1:-release}
shift || true
if [ ! -f "build/$preset/build.ninja" ]; then
  log=$(mktemp)
  cmake --preset "$preset" >"$log" 2>&1 || { cat "$log"; rm -f "$log"; exit 1; }
  rm -f "$log"
fi
cmake --build --preset "$preset" ${@:+--target "$@"}
