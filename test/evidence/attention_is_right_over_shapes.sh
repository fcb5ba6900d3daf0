#!/usr/bin/env bash
# Claim: Attention on tensor cores and its gradients are right over at least 200 shapes in bf16 and f16: heads of 8 to 256 elements, up to 200 queries and 270 keys, causal,
#   windows, masks, soft caps, dropout, shared keys. Every number lies within the band that follows from how its operations are rounded (test/conformance/Bands.h), and
#   the emulator finds nothing.
# Topic: GPUs
# Quick: three shapes of each class and type
set -euo pipefail
cd "$(dirname "$0")/../.."
bin=${ZORSE_BIN:-build/release/bin}
if [ "${1:-}" = --quick ]; then words=(--quick); else words=(--seeds=4); fi
log=$(mktemp)
trap 'rm -f "$log"' EXIT
status=0
for class in "tensor cores" "tensor cores, gradient"; do
  "$bin/kernel-conformance" "${words[@]}" --class="$class" | tee -a "$log" || status=1
done
awk '/worst error/ { for (i = 1; i <= NF; ++i) if ($i ~ /^shapes/) shapes += $(i - 1); else if ($i ~ /^findings/) findings += $(i - 1); else if ($i == "error" && $(i + 1) > worst) worst = $(i + 1) }
  END { printf "%d shapes, %d outside of their bands or with findings (limit 0), worst error %.3f of its band (limit 1)\n", shapes, findings, worst; exit findings > 0 || shapes == 0 }' "$log" || status=1
exit $status
