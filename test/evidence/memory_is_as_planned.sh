#!/usr/bin/env bash
# Claim: Memory is as planned: touched arena bytes against the plan, process memory against plan and reserve.
# Topic: Compiler
# Quick: whole
set -euo pipefail
cd "$(dirname "$0")/../.."
exec /usr/bin/python3 test/e2e/bundles.py memory
