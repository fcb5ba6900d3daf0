#!/usr/bin/env bash
# Claim: Every command of the documentation runs and prints what stands below it: getting started, fine-tuning, a what-if question, a mixed cluster, and all others; so do the examples of passes.
# Topic: Getting started
# Quick: the examples of passes
set -euo pipefail
cd "$(dirname "$0")/../.."
source test/evidence/figures.bash
[ "${1:-}" = --quick ] || figure "pages" /usr/bin/python3 test/e2e/documented_commands.py
figure "passes" /usr/bin/python3 test/e2e/documented_passes.py
