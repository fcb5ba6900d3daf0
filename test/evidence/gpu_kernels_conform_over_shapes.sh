#!/usr/bin/env bash
# Claim: GPU kernels of every class are right in f32, bf16 and f16 over at least 20 shapes each (primes, sizes around vectors, warps and blocks, unaligned slices,
#   vocabularies of 50,257). Every number lies within the band that follows from how its operations are rounded (test/conformance/Bands.h).
# Topic: GPUs
# Quick: three shapes of each class and type instead of 32
#
# With --seeds=N there are eight more shapes of each class and type for every seed beyond the first.
set -euo pipefail
cd "$(dirname "$0")/../.."
exec build/release/bin/kernel-conformance "$@"
