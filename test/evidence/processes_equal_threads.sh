#!/usr/bin/env bash
# Claim: A process per device over Gloo gives the bits of threads of one process: losses, norms, evaluations, parameters; also with every transfer stretched at random.
# Topic: Jobs
# Quick: 6 plans instead of 24, 3 stretched instead of 12
set -euo pipefail
cd "$(dirname "$0")/../.."
plain=24 delayed=12
[ "${1:-}" = --quick ] && plain=6 delayed=3
source test/evidence/figures.bash
figure "" /usr/bin/python3 test/e2e/processes.py "$plain"
figure "with random delays" /usr/bin/python3 test/e2e/processes.py "$delayed" --delays
