#!/usr/bin/env bash
# Real launchers: runs_under_launchers.sh [--quick] [mpirun|srun|torchrun|processes|nodes|ends ...]; all without a name (torchrun installs PyTorch into .venv).
# Twenty plans under each: metrics and trained parameters equal to threads of one process, to the bit. nodes: two nodes as Kubernetes starts them; ends: kills, stops and
# restarts under each. --quick: 5 plans.
set -euo pipefail
cd "$(dirname "$0")/../.."
plans=20
[ "${1:-}" = --quick ] && { plans=5; shift; }
[ $# -gt 0 ] || set -- processes mpirun srun torchrun nodes ends
figures=()
for launcher in "$@"; do
  if [ "$launcher" = torchrun ] || [ "$launcher" = ends ]; then
    export ZORSE_PYTHON=${ZORSE_PYTHON:-$(tools/python-env.sh | tail -1)}
  fi
  log=$(mktemp)
  case "$launcher" in
    nodes) command=(test/e2e/nodes.py) ;;
    ends) command=(test/e2e/launch_ends.py processes mpirun srun torchrun) ;;
    *) command=(test/e2e/launchers.py "$launcher" "$plans") ;;
  esac
  /usr/bin/python3 "${command[@]}" | tee "$log" || { rm -f "$log"; exit 1; }
  figures+=("$launcher: $(tail -1 "$log" | sed "s/^$launcher: //")")
  rm -f "$log"
done
printf '%s\n' "" "${figures[@]}"
