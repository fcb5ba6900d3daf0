#!/usr/bin/env bash
# Claim: Expanding a plan for 512 devices takes a second.
# Topic: Planner
# Quick: whole
set -euo pipefail
cd "$(dirname "$0")/../.."
exec build/release/bin/expansion-cost
