#!/usr/bin/env bash
# Claim: on emulated GPUs nothing is left to chance between streams, events, copies and transports: 32 random plans with one to three GPUs, 1,024 runs at random delays leave the same bits
#   without a finding, and of 512 mutants (waits of programs and of streams, records of events, work on another stream) every one is found.
# Topic: GPUs
# Quick: 3 plans, 12 runs, 36 mutants
set -euo pipefail
cd "$(dirname "$0")/../.."
exec /usr/bin/python3 test/e2e/streams.py "$@"
