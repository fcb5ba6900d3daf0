#!/usr/bin/env bash
# Installs, builds and runs tests: tools/run-tests.sh [--fast | --all] [--preset PRESET]
#   (neither)  what every change must pass (.ci/run): of every area the short forms
#   --fast     the inner loop: unit and lit tests only
#   --all      everything: also the long forms, every test under sanitizers, and clang-tidy on the whole tree; takes hours
# Says at the end what could not be tested on this machine, and the command that runs it.
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
tools/ptxas.sh >/dev/null || true # without it kernels for GPUs are compiled, and not assembled
tools/ctest.sh "build/$preset" "${which[@]}"
if [ $form = all ]; then
  tools/check-format.sh
  tools/check-tidy.sh --all
  tools/run-sanitizers.sh
fi
