#!/usr/bin/env bash
# Claim: The control plane names the first cause, to every living rank once, and runs that stop early stop at one step: random schedules of deaths, failures, blame,
#   silence and early stops over 3 to 8 ranks, in simulated time and over sockets.
# Topic: Jobs
# Quick: a tenth of the schedules
set -euo pipefail
cd "$(dirname "$0")/../.."
simulated=20000; sockets=2000
[ "${1:-}" = --quick ] && simulated=2000 && sockets=200
ZORSE_CONTROL_SCHEDULES=$simulated build/release/bin/runtime_control_test --gtest_filter='ControlJob.Random*' --gtest_brief=1
ZORSE_CONTROL_SCHEDULES=$sockets build/release/bin/runtime_control_fault_test --gtest_filter='ControlRandom.*' --gtest_brief=1
echo "$((3 * simulated)) of $((3 * simulated)) schedules in simulated time, $sockets of $sockets over sockets"
