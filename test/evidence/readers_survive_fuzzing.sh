#!/usr/bin/env bash
# Every reader gets a million changed inputs under ASan and UBSan: no crash, no hang, no allocation beyond the limits printed (docs/fuzzing.md).
#   --quick: 20,000 each, without the readers that need MLIR
set -euo pipefail
cd "$(dirname "$0")/../.."
log=$(mktemp)
trap 'rm -f "$log"' EXIT
failed=0
tools/fuzz.py --jobs 2 "$@" | tee "$log" || failed=1
awk '/ inputs / { n++; gsub(",", "", $2); sum += $2; if (n == 1 || $2 < least) least = $2; found += $(NF - 1) }
     END { printf "%d readers, %d inputs, at least %d each, %d findings\n", n, sum, least, found }' "$log"
exit $failed
