#!/usr/bin/env bash
# Claim: The text of the PTX that bundles ship, executed by an interpreter that knows nothing of LLVM, writes the bits that the emulator makes of the
#   bitcode it came from, in kernels of every class, in f32, bf16 and f16, for P100, V100, T4, A100, H100, B200 and RTX 5090, without a race, an access
#   out of bounds, a value that is not defined or a barrier that some threads do not reach. It finds every barrier, wait and fence that is left out of
#   the text, and every one of at least 30 other bugs that are planted there.
# Topic: GPUs
# Quick: three shapes of each class in bf16, A100; four kernels without their synchronizations
#
# The long form takes all shapes for A100, H100 and RTX 5090, and three of each class and type for the others.
set -euo pipefail
cd "$(dirname "$0")/../.."
source test/evidence/figures.bash
bin=build/release/bin
if [ "${1:-}" = --quick ]; then
  figure sm_80 "$bin/kernel-conformance" --quick --type=bf16 --ptx=sm_80
  figure "" "$bin/ptx-faults" --quick
  exit
fi
for arch in sm_80 sm_90 sm_120; do
  figure $arch "$bin/kernel-conformance" --ptx=$arch
done
for arch in sm_60 sm_70 sm_75 sm_100; do
  figure $arch "$bin/kernel-conformance" --quick --ptx=$arch
done
figure "" "$bin/ptx-faults"
figure "" "$bin/ptx-faults" --arch=sm_60
