#!/usr/bin/env bash
# Claim: Kernels of every class for GPUs, with values in f32, bf16 and f16, over at least 20 shapes each (1, primes, sizes around vectors, warps and
#   blocks, slices that begin anywhere, vocabularies of 50,257): no access that the emulator objects to, and every number within the
#   band that follows from how its operations are rounded (test/conformance/Bands.h), overwriting and adding.
# Topic: GPUs
# Quick: three shapes of each class and type instead of 32
#
# With --seeds=N there are eight more shapes of each class and type for every seed beyond the first.
set -euo pipefail
cd "$(dirname "$0")/../.."
exec build/release/bin/kernel-conformance "$@"
