#!/usr/bin/env bash
# Claim: Arenas are within 3 % of the peak of the bytes that are alive at once, on random plans of models of 7B to 65B parameters, of every schedule and with every residency,
#   although bytes are handed on only where no entry has to wait for that.
# Topic: Memory
# Quick: 60 plans instead of 300
set -euo pipefail
cd "$(dirname "$0")/../.."
plans=300; [ "${1:-}" = --quick ] && plans=60
exec build/release/bin/packing --plans=$plans
