#!/usr/bin/env bash
# Mutants of the programs of random plans and schedules: the interpreter says which are harmful, the verifier must reject those and no correct program.
# Prints the table of docs/verifier.md (--quick: 10 plans instead of 60; --details: also a row for every mutation). With a bundle as argument its model is
# used instead of synthetic ones.
set -euo pipefail
cd "$(dirname "$0")/../.."
plans=60
details=
while [[ "${1:-}" = --* ]]; do
  case $1 in
  --quick) plans=10 ;;
  --details) details=--details ;;
  *) echo "usage: $0 [--quick] [--details] [BUNDLE]" >&2; exit 2 ;;
  esac
  shift
done
exec build/release/bin/zorse-mutate --plans=$plans --threads="$(nproc)" $details ${1:+--bundle="$1" --first=1000}
