#!/usr/bin/env bash
# Claim: Every mistake made around copies of parameters in low precision (casts, gathers of copies, their readers) is found by the verifier; per parameter an owner keeps 12 bytes
#   with Adam, a reader 2, a contributor 4.
# Topic: Verifier
# Quick: whole
set -euo pipefail
cd "$(dirname "$0")/../.."
exec build/release/bin/StepProgramsTest --gtest_filter='Copies.*' --gtest_brief=1
