#!/usr/bin/env bash
# Claim: An interpreter of the shipped PTX text, which shares nothing with LLVM, writes the bits that the emulator makes of the bitcode, for kernels of every class in f32,
#   bf16 and f16 and seven GPUs from P100 to RTX 5090. It finds every dropped barrier, wait and fence and at least 30 other planted bugs.
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
