#!/usr/bin/env bash
# Claim: Random plans of four emulated GPUs with uneven shards of samples and state, some beside a processor, train to the same bytes when GPUs exchange directly (in one process at random
#   delays of streams, and in several) and when they do so by way of the host, through local transports and through Gloo.
# Topic: GPUs
# Quick: 3 plans instead of 24
set -euo pipefail
cd "$(dirname "$0")/../.."
exec /usr/bin/python3 test/e2e/direct.py "$@"
