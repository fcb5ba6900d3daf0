#!/usr/bin/env bash
# Claim: What is trained, and its gradients, are PyTorch's own lists: random modules with frozen, tied, folded and detached parameters in five exports, with and without facts. None differs silently.
# Topic: Exports
# Quick: 6 modules instead of 65
#
# Installs PyTorch into .venv.
set -euo pipefail
cd "$(dirname "$0")/../.."
modules=65; [ "${1:-}" = --quick ] && modules=6
python=${ZORSE_PYTHON:-$(tools/python-env.sh | tail -1)}
exec "$python" test/e2e/trained_facts.py --modules $modules
