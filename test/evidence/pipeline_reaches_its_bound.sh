#!/usr/bin/env bash
# Claim: A two-stage pipeline on two cores reaches its schedule's bound, as threads and as two processes over Gloo.
# Topic: Speed
# Quick: whole
set -euo pipefail
cd "$(dirname "$0")/../.."
source test/evidence/figures.bash
figure processes /usr/bin/python3 test/benchmark/pipeline_bound.py --processes
figure threads /usr/bin/python3 test/benchmark/pipeline_bound.py
