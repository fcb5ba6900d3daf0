#!/usr/bin/env bash
# Claim: The same bundle under real launchers (zorse-run --processes, Open MPI's mpirun, Slurm's srun, torchrun, two nodes as Kubernetes starts them) gives the metrics
#   and parameters of threads of one process to the bit; jobs end under each as documented.
# Topic: Jobs
# Quick: zorse-run, mpirun and srun, 3 plans instead of 20; how jobs end is left out
#
# runs_under_launchers.sh [--quick] [mpirun|srun|torchrun|processes|nodes|ends ...]; all without a name (torchrun installs PyTorch into .venv).
# nodes: two nodes as Kubernetes starts them; ends: kills, stops and restarts under each.
set -euo pipefail
cd "$(dirname "$0")/../.."
plans=20
all=(processes mpirun srun torchrun nodes ends)
[ "${1:-}" = --quick ] && { plans=3 all=(processes mpirun srun); shift; }
[ $# -gt 0 ] || set -- "${all[@]}"
source test/evidence/figures.bash
for launcher in "$@"; do
  if [ "$launcher" = torchrun ] || [ "$launcher" = ends ]; then
    export ZORSE_PYTHON=${ZORSE_PYTHON:-$(tools/python-env.sh | tail -1)}
  fi
  case "$launcher" in
    nodes) command=(test/e2e/nodes.py) ;;
    ends) command=(test/e2e/launch_ends.py processes mpirun srun torchrun) ;;
    *) command=(test/e2e/launchers.py "$launcher" "$plans") ;;
  esac
  figure "$launcher" /usr/bin/python3 "${command[@]}"
done
