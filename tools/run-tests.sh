#!/usr/bin/env bash
# Installs, builds and runs every test: tools/run-tests.sh [--fast] [--preset PRESET]
#   --fast     the inner loop: unit and lit tests only
# Says at the end what could not be tested on this machine, and the command that runs it.
set -euo pipefail
cd "$(dirname "$0")/.."
preset=release
fast=0
while [ $# -gt 0 ]; do
  case "$1" in
    --fast) fast=1 ;;
    --preset) preset=$2; shift ;;
    *) echo "usage: tools/run-tests.sh [--fast] [--preset PRESET]"; exit 2 ;;
  esac
  shift
done
which=()
if [ "$fast" = 1 ]; then
  tools/install.sh
  which=(-LE slow)
else
  tools/install.sh --launchers
fi
tools/build.sh "$preset"
exec tools/ctest.sh "build/$preset" "${which[@]}"
