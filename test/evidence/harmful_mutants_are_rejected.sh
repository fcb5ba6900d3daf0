#!/usr/bin/env bash
# Claim: Harmful mutants of programs are rejected, correct programs are not: mutations of every class of fault, five kinds of plans, three of schedules; an interpreter
#   that shares no code with the verifier says which are harmful.
# Topic: Verifier
# Quick: 5 plans instead of 60
#
# Prints the table of docs/verifier.md (--details: also a row for every mutation). With a bundle as argument its model is used instead of synthetic ones.
set -euo pipefail
cd "$(dirname "$0")/../.."
plans=60
details=
while [[ "${1:-}" = --* ]]; do
  case $1 in
  --quick) plans=5 ;;
  --details) details=--details ;;
  *) echo "usage: $0 [--quick] [--details] [BUNDLE]" >&2; exit 2 ;;
  esac
  shift
done
exec build/release/bin/zorse-mutate --plans=$plans --threads="$(nproc)" $details ${1:+--bundle="$1" --first=1000}
