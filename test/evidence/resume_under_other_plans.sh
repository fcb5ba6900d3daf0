#!/usr/bin/env bash
# Losses on 5 devices, then 3, then 7, each under another plan, against the unbroken run on 5: f32 within 1e-5, f64 within 1e-9. --quick: GPT, 24 steps.
set -euo pipefail
cd "$(dirname "$0")/../.."
exec /usr/bin/python3 test/e2e/resume.py plans "$@"
