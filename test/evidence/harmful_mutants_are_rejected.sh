#!/usr/bin/env bash
# Mutants of programs of random plans: the interpreter says which are harmful, the verifier must reject those and no correct program
# (--quick: 10 plans instead of 60). With a bundle as argument its model is used instead of synthetic ones.
set -euo pipefail
cd "$(dirname "$0")/../.."
plans=60; [ "${1:-}" = --quick ] && plans=10 && shift
exec build/release/bin/zorse-mutate --plans=$plans --per-class=2 --threads="$(nproc)" ${1:+--bundle="$1" --first=1000}
