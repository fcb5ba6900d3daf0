#!/usr/bin/env bash
# Claim: Every save policy (--save min-cut, keep, full), with the backward in one part or two, leaves the same bits of every gradient and, after five steps, of every
#   parameter (f64 with the roundings of bf16 and f16); in bf16 itself gradients are within 5e-7.
# Topic: Mathematics
# Quick: GPT only
set -euo pipefail
cd "$(dirname "$0")/../.."
exec /usr/bin/python3 test/e2e/same_roundings.py "$@"
