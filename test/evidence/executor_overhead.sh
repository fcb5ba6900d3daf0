#!/usr/bin/env bash
# What the executor adds to a task.
set -euo pipefail
cd "$(dirname "$0")/../.."
exec python3 test/benchmark/executor_overhead.py
