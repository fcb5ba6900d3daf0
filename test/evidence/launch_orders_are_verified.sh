#!/usr/bin/env bash
# Claim: Launches from GPU to GPU in an order that does not fit that of other devices, and other mistakes in direct programs, are found when a model is compiled: every mutant of random plans;
#   an interpreter that shares no code with the verifier finds the programs themselves right.
# Topic: GPUs
# Quick: whole
set -euo pipefail
cd "$(dirname "$0")/../.."
log=$(mktemp)
trap 'rm -f "$log"' EXIT
build/release/bin/StepProgramsTest --gtest_filter='Direct.*' --gtest_brief=1 | tee "$log"
sed -n 's/^\([0-9].*\(found\|order\)\)$/\1/p' "$log" | paste -sd ';' | sed 's/;/; /g'
