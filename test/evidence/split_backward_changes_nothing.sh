#!/usr/bin/env bash
# Claim: Plans that split the backward (B, W) train like one device that does not, in f64: pipelines and
#   orders of GPT and LLaMA; processes and threads are bit-equal. Random tilings with W are in random_tilings.sh.
# Topic: Mathematics
# Quick: without processes
set -euo pipefail
cd "$(dirname "$0")/../.."
words=(--processes)
[ "${1:-}" = --quick ] && words=()
exec /usr/bin/python3 test/e2e/split_backward.py "${words[@]}"
