#!/usr/bin/env bash
# Claim: Readers survive fuzzing: a million changed inputs each under ASan and UBSan, no crash, hang or allocation beyond stated limits (docs/fuzzing.md).
# Topic: Robustness
# Quick: none, because building under sanitizers alone takes longer; fuzz tests of CTest replay the corpus and thousands of changed inputs
#
# --quick: 20,000 each, without the readers that need MLIR.
set -euo pipefail
cd "$(dirname "$0")/../.."
log=$(mktemp)
trap 'rm -f "$log"' EXIT
failed=0
tools/fuzz.py --jobs 2 "$@" | tee "$log" || failed=1
awk '/ inputs / { n++; gsub(",", "", $2); sum += $2; if (n == 1 || $2 < least) least = $2; found += $(NF - 1) }
     END { printf "%d readers, %d inputs, at least %d each, %d findings\n", n, sum, least, found }' "$log"
exit $failed
