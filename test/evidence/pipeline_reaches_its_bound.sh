#!/usr/bin/env bash
# A two-stage pipeline on two cores against the bound of its schedule: two processes over Gloo, then threads of one process.
set -euo pipefail
cd "$(dirname "$0")/../.."
/usr/bin/python3 test/benchmark/pipeline_bound.py --processes
exec /usr/bin/python3 test/benchmark/pipeline_bound.py
