#!/usr/bin/env bash
# Claim: GPT and LLaMA train on emulated GPUs, alone and in plans with processors, through the driver that real ones have: in f32 the losses of 20 steps are within 1e-5 of those of one
#   processor and first-step gradients within 1e-5 in the known norm; in bf16 and f16 within 2e-3 and 2e-2.
# Topic: GPUs
# Quick: GPT in f32 and bf16, three plans
set -euo pipefail
cd "$(dirname "$0")/../.."
exec /usr/bin/python3 test/e2e/cuda.py "$@"
