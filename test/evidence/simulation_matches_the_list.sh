#!/usr/bin/env bash
# Claim: The simulated first step of programs is the step that the compiler listed: random plans of every kind on random networks.
# Topic: Predictions
# Quick: whole
set -euo pipefail
cd "$(dirname "$0")/../.."
said=$(build/release/bin/program_simulation_test)
echo "$said"
grep 'plans on random networks' <<<"$said"
