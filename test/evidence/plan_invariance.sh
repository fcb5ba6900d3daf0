#!/usr/bin/env bash
# Seven plans against one device, AdamW with clipping, SGD without, f32 and f64. --quick: GPT, fewer steps.
set -euo pipefail
cd "$(dirname "$0")/../.."
exec /usr/bin/python3 test/e2e/plan_invariance.py "$@"
