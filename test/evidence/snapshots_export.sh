#!/usr/bin/env bash
# Claim: A snapshot exports to the checkpoint's bytes and into the ONNX file, which onnx accepts and computes the same loss with.
# Topic: Snapshots
# Quick: two models instead of three
set -euo pipefail
cd "$(dirname "$0")/../.."
exec /usr/bin/python3 test/e2e/export.py "$@"
