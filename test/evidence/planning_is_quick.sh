#!/usr/bin/env bash
# Claim: Plans for 64 to 4,096 devices in seconds on two cores, from opening the cluster file to closing plan.json: 512 devices of 2 types within 1.2 s, 4,096 of 4 types on
#   4 sites within 12 s.
# Topic: Planner
# Quick: up to 1,024 devices
set -euo pipefail
cd "$(dirname "$0")/../.."
exec /usr/bin/python3 test/benchmark/planning_time.py "$@"
