#!/usr/bin/env bash
# Claim: A bundle with two targets, two levels of x86-64, runs with each device on its own code and trains to the loss of one device, in threads and in processes.
# Topic: Compiler
# Quick: 5 steps instead of 50
set -euo pipefail
cd "$(dirname "$0")/../.."
steps=50; [ "${1:-}" = --quick ] && steps=5
exec /usr/bin/python3 test/e2e/targets.py $steps
