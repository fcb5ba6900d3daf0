#!/usr/bin/env bash
# Claim: No plan beats the bound; the factors of η multiply to it and are at most 1: random plans (any tiling, explicit orders, split backwards) and random layouts on random clusters. The linear programme agrees with an exact method.
# Topic: Planner
# Quick: whole
set -euo pipefail
cd "$(dirname "$0")/../.."
source test/evidence/figures.bash
figure plans build/release/bin/zorse_optimality_tests --gtest_brief=1
figure "bound and linear programme" build/release/bin/zorse_planning_tests --gtest_brief=1 --gtest_filter='*Bound*:*LinearProgram*:*Efficiency*'
