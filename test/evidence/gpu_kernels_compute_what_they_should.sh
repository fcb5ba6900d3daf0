#!/usr/bin/env bash
# Claim: Every operation's kernels for GPUs give the reference's results on the emulator, for 1, 2, 3 and 7 rows, overwriting and adding; no access leaves its operands, is misaligned, reads
#   shared memory that nothing wrote, or races with another thread. Of bugs planted in kernels of every class
#   (a collective dropped, an access moved, a guard opened) all are found.
# Topic: GPUs
# Quick: whole
set -euo pipefail
cd "$(dirname "$0")/../.."
exec build/release/bin/codegen_test --gtest_brief=1
