#!/usr/bin/env bash
# Claim: Plans that split the backward (B, W) train like one device that does not, in f64: tilings of models that are no language models, random tilings, pipelines and
#   orders of GPT and LLaMA; processes and threads are bit-equal.
# Topic: Mathematics
# Quick: 3 random tilings instead of 200, without processes
set -euo pipefail
cd "$(dirname "$0")/../.."
words=(200 --processes)
[ "${1:-}" = --quick ] && words=(3)
exec /usr/bin/python3 test/e2e/split_backward.py "${words[@]}"
