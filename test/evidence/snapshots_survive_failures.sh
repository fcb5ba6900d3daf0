#!/usr/bin/env bash
# Claim: Whatever is killed or fails at whichever file operation, the newest complete snapshot stays and no half-written one is read.
# Topic: Snapshots
# Quick: whole
set -euo pipefail
cd "$(dirname "$0")/../.."
exec build/release/bin/runtime_snapshot_test --gtest_brief=1
