#!/usr/bin/env bash
# Claim: What the planner's timer says of a layout is what the full expansion makes of its plan, to the bit: step times, busy seconds, peaks of memory before buffers are placed.
# Topic: Planner
# Quick: a sixth of the layouts
set -euo pipefail
cd "$(dirname "$0")/../.."
trials=600
[ "${1:-}" = --quick ] && trials=100
source test/evidence/figures.bash
search=build/release/bin/zorse_search_tests
compare() { ZORSE_TRIALS=$1 $search --gtest_brief=1 --gtest_filter="$2" | tee /dev/stderr | grep 'layouts'; }
figure "" compare $trials LayoutTimer.IsTheExpansion
figure "" compare $((trials / 2)) LayoutTimer.IsTheExpansionWhereStagesShareUnits
figure "750 random tilings under all schedules" build/release/bin/zorse_step_tests --gtest_brief=1 --gtest_filter='Schedule.TimesAgreeWithTheFullExpansion'
