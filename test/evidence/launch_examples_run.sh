#!/usr/bin/env bash
# Claim: The launching examples in docs/examples run as they stand: the Slurm job script, the commands of the Kubernetes manifests.
# Topic: Jobs
# Quick: whole
set -euo pipefail
cd "$(dirname "$0")/../.."
exec /usr/bin/python3 test/e2e/launch_examples.py
