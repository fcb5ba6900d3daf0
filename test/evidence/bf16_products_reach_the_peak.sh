#!/usr/bin/env bash
# Claim: Products in bf16 at the shapes of GPT-2 124M run at 0.75 of the processor's own measured peak or more, in one thread: of AVX512-BF16 where it has that, else of f32.
# Topic: Speed
# Quick: whole
set -euo pipefail
cd "$(dirname "$0")/../.."
exec build/release/bin/half-product-speed 0.75
