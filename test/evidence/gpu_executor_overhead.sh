#!/usr/bin/env bash
# Claim: The host takes at most five microseconds of processor time for an entry of a GPU, all threads together and without what the driver takes: on emulated GPUs that do nothing.
# Topic: GPUs
# Quick: whole
#
# What the time of a processor's executor is, executor_overhead.sh says. What a launch takes in NVIDIA's driver comes on top; nothing here has met hardware.
set -euo pipefail
cd "$(dirname "$0")/../.."
exec /usr/bin/python3 test/benchmark/gpu_executor_overhead.py
