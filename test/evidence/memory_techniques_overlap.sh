#!/usr/bin/env bash
# Claim: Parameters that are gathered by phase come at most twice a step and unit, whatever the number of micro-batches; updates overlap with the
#   backward of the next chunk (commit by group) or the next step's forward (by step), copies with computing. From traces.
# Topic: Memory
# Quick: one number of micro-batches, fewer steps
set -euo pipefail
cd "$(dirname "$0")/../.."
exec /usr/bin/python3 test/e2e/memory_traces.py "$@"
