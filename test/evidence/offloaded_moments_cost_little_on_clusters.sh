#!/usr/bin/env bash
# Claim: Moments on the hosts of clusters A and B make a step of Llama 7B longer by less than 1 %, simulated: the plan that the search finds, and the same with moments on the hosts.
# Topic: Memory
# Quick: cluster B
set -euo pipefail
cd "$(dirname "$0")/../.."
exec /usr/bin/python3 test/benchmark/moments_on_clusters.py "$@"
