#!/usr/bin/env bash
# A run that is stopped, interrupted or killed, and resumed, is the unbroken one in every bit: SGD with momentum, AdamW, dropout, shuffling, schedule, clipping, skipped steps. --quick: two cases.
set -euo pipefail
cd "$(dirname "$0")/../.."
exec /usr/bin/python3 test/e2e/resume.py exact "$@"
