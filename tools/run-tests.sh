#!/usr/bin/env bash
# Installs, builds and runs tests: tools/run-tests.sh [--fast | --all] [--preset PRESET]
#   (default)  the tests that every change must pass (.ci/run): short forms of all areas
#   --fast     unit and lit tests only
#   --all      all tests, also the long forms, every test under sanitizers, and clang-tidy on all sources; takes hours
# Prints at the end which tests were skipped on this machine, and the command that runs them.
set -euo pipefail
cd "$(dirname "$0")/.."
preset=release form=change
while [ $# -gt 0 ]; do
  case "$1" in
    --fast) form=fast ;;
    --all) form=all ;;
    --preset) preset=$2; shift ;;
    *) echo "usage: tools/run-tests.sh [--fast | --all] [--preset PRESET]"; exit 2 ;;
  esac
  shift
done
case $form in
  fast) packages=() which=(-LE 'slow|long') ;;
  change) packages=(--launchers) which=(-LE long) ;;
  all) packages=(--launchers) which=() ;;
esac
tools/install.sh "${packages[@]}"
tools/build.sh "$preset"
tools/ptxas.sh >/dev/null || true # without it, GPU kernels are compiled but not assembled
tools/ctest.sh "build/$preset" "${which[@]}"
if [ $form = all ]; then
  tools/check-format.sh
  tools/check-tidy.sh --all
  tools/run-sanitizers.sh
fi
