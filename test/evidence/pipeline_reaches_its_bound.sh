#!/usr/bin/env bash
# A two-stage pipeline on two cores against the bound of its schedule.
set -euo pipefail
cd "$(dirname "$0")/../.."
exec /usr/bin/python3 test/benchmark/pipeline_bound.py
