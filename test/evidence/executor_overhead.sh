#!/usr/bin/env bash
# What the executor adds to a task.
set -euo pipefail
cd "$(dirname "$0")/../.."
exec /usr/bin/python3 test/benchmark/executor_overhead.py
