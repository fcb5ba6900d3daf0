#!/usr/bin/env bash
# Claim: Every barrier, every wait for copies and every exchange between lanes of the kernels of attention is needed: of those dropped one at a time, in kernels of every schedule, forward and
#   backward, all are missed, by a finding of the emulator or by other numbers.
# Topic: GPUs
# Quick: heads of 64 elements
set -euo pipefail
cd "$(dirname "$0")/../.."
bin=${ZORSE_BIN:-build/release/bin}
filter='*AttentionBarriers*'
[ "${1:-}" = --quick ] && filter='*AttentionBarriers*/0'
log=$(mktemp)
trap 'rm -f "$log"' EXIT
status=0
"$bin/attention_barriers_test" --gtest_brief=1 --gtest_filter="$filter" | tee "$log" || status=1
awk '/ dropped: / { for (i = 1; i <= NF; ++i) if ($i == "dropped:") { found += $(i + 1); all += $(i + 3); right += $(i + 5) } }
  END { printf "%d of %d dropped barriers, waits and exchanges missed (limit: all), %d of them although the numbers were right\n", found, all, right; exit found < all || all == 0 }' "$log" || status=1
exit $status
