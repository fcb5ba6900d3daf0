#!/usr/bin/env bash
# Touched arena bytes against the plan, process memory against plan and reserve.
set -euo pipefail
cd "$(dirname "$0")/../.."
exec /usr/bin/python3 test/e2e/bundles.py memory
