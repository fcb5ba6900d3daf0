#!/usr/bin/env bash
# Random valid plans of random models, through Step and the serialised programs: the verifier must accept every one (--quick: 200 instead of 3,000).
set -euo pipefail
cd "$(dirname "$0")/../.."
plans=3000; [ "${1:-}" = --quick ] && plans=200
exec build/release/bin/valid-plans --plans=$plans
