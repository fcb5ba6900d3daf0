#!/usr/bin/env bash
# Claim: No other planner finds a faster plan: on random small instances, and for Llama shapes on the clusters of models/clusters.
# Topic: Planner
# Quick: every eighth instance, 7B on A and B
#
# How near plans come to the optimum and to their bound is judged by plans_are_optimal.sh and eta_on_clusters.sh.
set -euo pipefail
cd "$(dirname "$0")/../.."
every=1
table=()
if [ "${1:-}" = --quick ]; then
  every=8
  table=(--clusters=ab --models=7b)
fi
small=$(build/release/bin/compare-optima test/optimality/optima.jsonl --every=$every || true) # its exit code is about gaps to the optimum
echo "$small"
large=$(build/release/bin/bound-table "${table[@]}")
echo "$large"
faster=$(sed -n 's/.*faster in \([0-9]*\) cases.*/\1/p' <<<"$small" | tail -1)
cells=$(sed -n 's/^\([0-9][0-9]*\) cells, .*/\1/p' <<<"$large" | tail -1)
without=$(sed -n 's/.*cells, \([0-9]*\) without a plan that fits.*/\1/p' <<<"$large" | tail -1)
below=$(sed -n 's/.*below another planner: \([0-9]*\)$/\1/p' <<<"$large" | tail -1)
echo "another planner is faster on ${faster:-no number of} random instances (limit 0), and in ${below:-no number} of ${cells:-no} cells of models and clusters (limit 0); ${without:-?} of these have no plan that fits (limit 0)"
[ "${faster:-x}" = 0 ] && [ "${below:-x}" = 0 ] && [ "${without:-x}" = 0 ] && [ "${cells:-0}" -gt 0 ]
