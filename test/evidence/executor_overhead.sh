#!/usr/bin/env bash
# Claim: The executor adds little to a task.
# Topic: Speed
# Quick: whole
set -euo pipefail
cd "$(dirname "$0")/../.."
exec /usr/bin/python3 test/benchmark/executor_overhead.py
