#!/usr/bin/env bash
# Claim: Plans that keep state on the host, gather by phase, recompute, update on either side and commit by step or by group read nothing that is
#   gone: with every byte filled with NaN as soon as nobody is to read it any more, runs train to the same bits.
# Topic: Memory
# Quick: one plan of each shape, processors in f32, emulated GPUs in bf16
set -euo pipefail
cd "$(dirname "$0")/../.."
exec /usr/bin/python3 test/e2e/state_tiers.py --spoil "$@"
