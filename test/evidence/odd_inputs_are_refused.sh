#!/usr/bin/env bash
# Claim: FIFOs, folders, devices and sockets in the place of every file that a tool reads, links out of a model's folder, chains of tens of thousands of nodes, names of megabytes, tensors that no memory
#   holds and checkpoints with tens of thousands of tensors are read or refused: nothing waits, nothing aborts, and time grows with size.
# Topic: Robustness
# Quick: FIFOs alone
set -euo pipefail
cd "$(dirname "$0")/../.."
source test/evidence/figures.bash
kinds=fifo,folder,device,socket
[ "${1:-}" = --quick ] && kinds=fifo
figure "files" /usr/bin/python3 test/e2e/odd_files.py --kinds $kinds
figure "models" /usr/bin/python3 test/e2e/odd_models.py
