#!/usr/bin/env bash
# Claim: No other planner finds a faster plan: on random small instances, and for Llama shapes on the clusters of models/clusters.
# Topic: Planner
# Quick: every eighth instance, 7B on A and B
set -euo pipefail
cd "$(dirname "$0")/../.."
every=1
table=()
if [ "${1:-}" = --quick ]; then
  every=8
  table=(--clusters=ab --models=7b)
fi
small=$(build/release/bin/compare-optima test/optimality/optima.jsonl --every=$every || true) # judges gaps to the optimum as well: plans_are_optimal.sh
echo "$small"
large=$(build/release/bin/bound-table "${table[@]}")
echo "$large"
grep -q 'faster in 0 cases' <<<"$small" && grep -q 'below another planner: 0$' <<<"$large"
