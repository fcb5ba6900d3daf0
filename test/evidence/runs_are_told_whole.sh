#!/usr/bin/env bash
# Claim: Runs take everything from a configuration file that flags say, evaluate alone, sample text, write event files for TensorBoard and a page of their own, and end with a table of where
#   time went; data may be many shards, and text becomes shards with boundaries of documents and masks of the loss.
# Topic: Getting started
# Quick: whole
set -euo pipefail
cd "$(dirname "$0")/../.."
source test/evidence/figures.bash
figure "runs" /usr/bin/python3 test/e2e/runs.py
figure "shards" /usr/bin/python3 test/e2e/token_shards.py
figure "pages" /usr/bin/python3 test/e2e/pages.py
