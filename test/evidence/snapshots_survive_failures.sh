#!/usr/bin/env bash
# Claim: Whatever is killed or fails at whichever file operation, the newest complete snapshot stays and no half-written one is read.
# Topic: Snapshots
# Quick: whole
set -euo pipefail
cd "$(dirname "$0")/../.."
said=$(build/release/bin/runtime_snapshot_test --gtest_brief=1)
echo "$said"
echo "$(grep -oE '[0-9]+ tests ran|[0-9]+ tests\.' <<<"$said" | tail -1) $(grep -E '^[0-9]+ (deaths|faults)' <<<"$said" | paste -sd ';' | sed 's/;/; /g'), each at another operation"
