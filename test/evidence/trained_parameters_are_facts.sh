#!/usr/bin/env bash
# What is trained, and its gradients, against PyTorch's own lists: random modules with frozen, tied, folded and detached parameters in five exports, with and without facts
# (installs PyTorch into .venv). None may differ silently. --quick: 6 modules.
set -euo pipefail
cd "$(dirname "$0")/../.."
modules=65; [ "${1:-}" = --quick ] && modules=6
python=${ZORSE_PYTHON:-$(tools/python-env.sh | tail -1)}
exec "$python" test/e2e/trained_facts.py --modules $modules
