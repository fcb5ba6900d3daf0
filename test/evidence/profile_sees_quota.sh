#!/usr/bin/env bash
# Claim: A profile taken under a processor quota says so: times of the unit functions of a small model in control groups of 80 and 40 % of a processor, over those without
#   one, are within 10 % of 1/0.8 and 1/0.4.
# Topic: Predictions
# Quick: fewer rows and seconds
#
# Needs to be root on a machine with control groups and a quiet processor.
set -euo pipefail
here=$(cd "$(dirname "$0")/../.." && pwd)
bin=${ZORSE_BIN:-$here/build/release/bin}
seconds=40 rows=1,4
[ "${1:-}" = --quick ] && seconds=6 rows=2
folder=$(mktemp -d)
groups=()
clean() {
  for group in "${groups[@]}"; do rmdir "$group" 2>/dev/null || true; done
  rm -rf "$folder"
}
trap clean EXIT
cat >"$folder/cluster.yaml" <<YAML
nodes: [{name: here, devices: [{name: a, kind: cpu, speed: 20 GFLOP/s, memory: 1 GiB}]}]
YAML
"$bin/zorse-compile" "$here/models/small/gpt-bytes.onnx" --seq 128 --cluster "$folder/cluster.yaml" --batch 8 --quiet -o "$folder/gpt.zorse"

# limit NAME PERCENT: makes a group and says where its tasks go.
limit() {
  local quota=$(($2 * 50)) # of a period of 5 ms
  if [ -f /sys/fs/cgroup/cgroup.controllers ]; then
    local group=/sys/fs/cgroup/$1
    mkdir "$group" && echo "$quota 5000" >"$group/cpu.max"
  else
    local group=/sys/fs/cgroup/cpu/$1
    mkdir "$group" && echo 5000 >"$group/cpu.cfs_period_us" && echo "$quota" >"$group/cpu.cfs_quota_us"
  fi
  echo "$group"
}
profile() { "$bin/zorse-profile" "$folder/gpt.zorse" --rows "$rows" --seconds "$seconds" -o "$folder/$1.json" --quiet; }

for percent in 80 40; do
  group=$(limit "zorse-quota-$$-$percent" "$percent") || { echo "SKIP: no control group can be made here (root and the cpu controller are needed)"; exit 77; }
  groups+=("$group")
done
profile free
for percent in 80 40; do
  (echo $BASHPID >"/sys/fs/cgroup/$([ -f /sys/fs/cgroup/cgroup.controllers ] || echo cpu)/zorse-quota-$$-$percent/cgroup.procs" && profile "$percent")
done
python3 - "$folder" <<'PY'
import json, statistics, sys
load = lambda name: json.load(open(f"{sys.argv[1]}/{name}.json"))
points = lambda p: {(c, q["rows"], k): q[k] for c, d in p["devices"][0]["classes"].items() if c.startswith("block") for q in d[0]["points"] for k in q if k != "rows"}
free, worst = points(load("free")), 0
for percent in (80, 40):
    limited = load(percent)
    assert f"{percent / 100:g} processors by control group" in limited["comment"], limited["comment"]
    times = points(limited)
    ratio = statistics.median(times[k] / free[k] for k in free)
    off = abs(ratio * percent / 100 - 1)
    worst = max(worst, off)
    print(f"quota {percent} %: times {ratio:.2f} times those without one, expected {100 / percent:.2f} (median of {len(free)} points)")
print(f"{'ok' if worst <= 0.10 else 'FAIL'}: at most {100 * worst:.1f} % from what the quota says (limit 10 %)")
sys.exit(worst > 0.10)
PY
