#!/usr/bin/env bash
# Claim: Schedules are near their bound on seeded pipelines of 3 to 8 uneven stages over slow links; timed orders are the best orders of small plans, by branch and bound.
# Topic: Planner
# Quick: 6 pipelines instead of 24
set -euo pipefail
cd "$(dirname "$0")/../.."
cases=24; [ "${1:-}" = --quick ] && cases=6
exec build/release/bin/schedule_comparison --cases=$cases
