#!/usr/bin/env bash
# Claim: GPU kernels of every operation give the reference's results on the emulator, for 1, 2, 3 and 7 rows, overwriting and adding. No access leaves its operands, is
#   misaligned, reads shared memory that nothing wrote, or races. All bugs planted in kernels of every class are found.
# Topic: GPUs
# Quick: whole
set -euo pipefail
cd "$(dirname "$0")/../.."
exec build/release/bin/codegen_test --gtest_brief=1
