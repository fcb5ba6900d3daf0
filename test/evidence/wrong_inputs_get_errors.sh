#!/usr/bin/env bash
# Claim: Every wrong input gets an error that names the place.
# Topic: Compiler
# Quick: whole
set -euo pipefail
cd "$(dirname "$0")/../.."
exec /usr/bin/python3 test/e2e/bad_input.py
