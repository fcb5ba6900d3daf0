#!/usr/bin/env bash
# Claim: Random valid plans of random models, through Step and the serialised programs, are accepted by the verifier.
# Topic: Verifier
# Quick: 200 plans instead of 3,000
set -euo pipefail
cd "$(dirname "$0")/../.."
plans=3000; [ "${1:-}" = --quick ] && plans=200
exec build/release/bin/valid-plans --plans=$plans
