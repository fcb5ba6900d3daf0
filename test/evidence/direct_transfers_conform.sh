#!/usr/bin/env bash
# Claim: Random lists of transfers, gathers, reductions and sums from GPU to GPU, through a stand-in for NCCL on emulated GPUs, leave the bits of local transports, in one process
#   and in several; sizes that differ and a GPU that never comes are errors in time.
# Topic: GPUs
# Quick: 8 lists in one process and 4 in several instead of 60 and 30
set -euo pipefail
cd "$(dirname "$0")/../.."
lists=60 few=30
[ "${1:-}" = --quick ] && lists=8 few=4
source test/evidence/figures.bash
export LD_LIBRARY_PATH=$PWD/build/release/standin
figure "" build/release/bin/direct-conformance --lists $lists
figure "" build/release/bin/direct-conformance --lists $few --processes
