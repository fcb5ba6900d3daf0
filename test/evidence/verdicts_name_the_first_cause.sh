#!/usr/bin/env bash
# Random schedules of deaths, failures, blame, silence and early stops over 3 to 8 ranks: every living rank gets one verdict, about the first cause, and
# runs that stop early stop at one step. In simulated time, and over sockets (--quick: a tenth).
set -euo pipefail
cd "$(dirname "$0")/../.."
simulated=20000; sockets=2000
[ "${1:-}" = --quick ] && simulated=2000 && sockets=200
ZORSE_CONTROL_SCHEDULES=$simulated build/release/bin/runtime_control_test --gtest_filter='ControlJob.Random*' --gtest_brief=1
ZORSE_CONTROL_SCHEDULES=$sockets build/release/bin/runtime_control_fault_test --gtest_filter='ControlRandom.*' --gtest_brief=1
echo "$((3 * simulated)) of $((3 * simulated)) schedules in simulated time, $sockets of $sockets over sockets"
