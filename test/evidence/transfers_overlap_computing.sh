#!/usr/bin/env bash
# Claim: Copies, transfers and reductions of GPUs run beside computing as the simulated step says: on emulated GPUs whose clock has the simulated one's rates, as many seconds are moved, and
#   as many of them beside computing, but for a few percent.
# Topic: GPUs
# Quick: one plan, directly from GPU to GPU
#
# Measured are, in traces of the real executor and driver, the seconds in which bytes move to or from a device and those of them in which it computes, medians of five steps, for two plans, directly and by way of the host.
# Bytes of memory and of links take time at two rates, on the emulated GPUs as in the cluster file; what bodies take is profiled there. So both clocks count the same, and what is left between them is the executor:
# were a stream to wait where the program does not, what is hidden would fall short (limit 0.85 of the seconds planned, and 0.05 of the share). More is moved than planned, by at most 0.2, because GPUs add
# the parts of a reduction after they have arrived, which plans leave out; at these rates, of a network and a GPU's memory, that is an eighth of a reduction between two.
set -euo pipefail
cd "$(dirname "$0")/../.."
exec /usr/bin/python3 test/e2e/overlap.py "$@"
