#!/usr/bin/env bash
# Claim: Recomputing a deep GPT block by block takes at most a quarter of its activations; losses are the same to every bit.
# Topic: Memory
# Quick: fewer turns
set -euo pipefail
cd "$(dirname "$0")/../.."
exec /usr/bin/python3 test/e2e/recompute.py "$@"
