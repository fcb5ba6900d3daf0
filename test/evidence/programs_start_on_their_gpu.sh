#!/usr/bin/env bash
# Claim: Every program starts on the GPU that it is for, or the run ends with a message that names the remedy: 35 machines of the stand-in's driver, with GPUs in permuted orders, hidden, named, too
#   small and too few, and architectures that the list lacks, in threads and in processes.
# Topic: GPUs
# Quick: whole
set -euo pipefail
cd "$(dirname "$0")/../.."
exec /usr/bin/python3 test/e2e/gpu_places.py
