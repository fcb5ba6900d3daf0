#!/usr/bin/env bash
# Claim: The planner against all layouts of random small instances, and against all tilings and task orders of tiny ones.
# Topic: Planner
# Quick: every eighth instance
#
# Computing the optima anew: test/optimality/README.md.
set -euo pipefail
cd "$(dirname "$0")/../.."
every=1
[ "${1:-}" = --quick ] && every=8
source test/evidence/figures.bash
figure layouts build/release/bin/compare-optima test/optimality/optima.jsonl --every=$every
figure tilings build/release/bin/compare-tilings test/optimality/tilings.jsonl --every=$every
