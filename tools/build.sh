#!/usr/bin/env bash
# Configures (once) and builds one preset: tools/build.sh [preset] [targets...]; the default preset is release.
set -euo pipefail
cd "$(dirname "$0")/.."
preset=${1:-release}
shift || true
[ -f "build/$preset/build.ninja" ] || cmake --preset "$preset" >"/tmp/zorse-configure-$$.log" 2>&1 || { cat "/tmp/zorse-configure-$$.log"; exit 1; }
rm -f "/tmp/zorse-configure-$$.log"
cmake --build --preset "$preset" ${@:+--target "$@"}
