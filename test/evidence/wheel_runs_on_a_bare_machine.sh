#!/usr/bin/env bash
# The wheel and the image of the Containerfile on a bare Debian 12.
#
# wheel_runs_on_a_bare_machine.sh [--quick] [WHEEL]: builds the wheel (takes minutes) unless one is given. The machine
# is the root made by fresh_machine.sh --prepare. Needs root.
set -euo pipefail
cd "$(dirname "$0")/../.."
source test/evidence/bare_machine.bash
quick=0 wheel=
for word in "$@"; do case "$word" in --quick) quick=1 ;; *) wheel=$(realpath "$word") ;; esac; done
folder=$(mktemp -d /var/tmp/zorse-wheel-XXXXXX)
trap 'rm -rf --one-file-system "$folder"' EXIT
test/evidence/fresh_machine.sh --prepare --folder="$folder" || exit $?
if [ -z "$wheel" ]; then
  python3 -m venv "$folder/builder"
  "$folder/builder/bin/pip" wheel -q --no-deps -w "$folder/wheel" .
  wheel=$(echo "$folder"/wheel/*.whl)
fi

cat >"$folder/first_step.py" <<'PYTHON'
import time
import numpy as np
import zorse

tokens = np.random.default_rng(0).integers(0, 64, 5000)
seen = []
run = zorse.train("gpt.onnx", tokens, max_steps=5, global_batch_size=8, seq_length=16, cluster="four-unequal-cpus.yaml", on_step=lambda step: seen.append(time.time()))
assert len(run.losses) == 5 and run.losses[-1] < run.losses[0]
print("first-step", seen[0])
PYTHON

# measure NAME SCRIPT: makes a fresh root, runs the script that installs, then the first steps with PYTHON; prints
# seconds.
measure() {
  local name=$1 root=$folder/$1
  cp -a "$folder/base" "$root"
  mkdir "$root/root/work"
  cp "$wheel" models/small/gpt.onnx models/small/gpt.onnx.data models/clusters/four-unequal-cpus.yaml "$folder/first_step.py" "$root/root/work/"
  local began first
  began=$(date +%s.%N)
  first=$(enter "$root" work "$2" | sed -n 's/^first-step //p')
  [ -n "$first" ] || { echo "$name: no step was trained"; exit 1; }
  figures+=("$name: first step after $(awk -v a="$began" -v b="$first" 'BEGIN { printf "%.0f", b - a }') s")
  awk -v a="$began" -v b="$first" 'BEGIN { exit b - a < 60 ? 0 : 1 }' || { printf '%s\n' "${figures[-1]} (limit 60)"; exit 1; }
}

figures=("wheel of $(($(stat -c %s "$wheel") / 1000000)) MB")
measure "pip install" 'apt-get update -qq >/dev/null; apt-get install -y -qq --no-install-recommends python3 python3-venv >/dev/null 2>&1; python3 -m venv v; v/bin/pip install -q ./*.whl; v/bin/python first_step.py'
figures+=("installed $(du -sm "$folder/pip install/root/work/v/lib" 2>/dev/null | cut -f1) MB")
if [ $quick = 0 ]; then
  # The last stage of the Containerfile, line by line; COPY --from provides the wheel.
  steps=$(sed -n '/^FROM .* AS run$/,$p' Containerfile | sed -e ':a' -e '/\\$/N; s/\\\n//; ta' | sed -n 's/^RUN //p')
  measure container "mkdir -p /dist; cp ./*.whl /dist/; $steps; /opt/zorse/bin/python first_step.py"
  figures+=("image $(du -sm --one-file-system --exclude=root/work --exclude=proc --exclude=sys --exclude=dev "$folder/container" | cut -f1) MB with Debian's base")
fi
printf -v line '%s; ' "${figures[@]}"
printf '\n%s (limit 60 s)\n' "${line%; }"
