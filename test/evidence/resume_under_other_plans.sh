#!/usr/bin/env bash
# Claim: Resuming from 5 devices on 3 and on 7, each under another plan, gives the unbroken run's losses: f32 within 1e-5, f64 within 1e-9.
# Topic: Snapshots
# Quick: GPT, 24 steps
set -euo pipefail
cd "$(dirname "$0")/../.."
exec /usr/bin/python3 test/e2e/resume.py plans "$@"
