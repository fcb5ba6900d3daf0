#!/usr/bin/env bash
# Claim: Seven plans train to one device's losses: GPT and LLaMA, AdamW with clipping and SGD without, f32 and f64.
# Topic: Mathematics
# Quick: GPT, fewer steps
set -euo pipefail
cd "$(dirname "$0")/../.."
exec /usr/bin/python3 test/e2e/plan_invariance.py "$@"
