#!/usr/bin/env bash
# Claim: The programs of 512 devices are simulated on a laptop: seconds and memory.
# Topic: Predictions
# Quick: whole
#
# simulation_scales.sh [SECONDS] [MIB]
set -euo pipefail
cd "$(dirname "$0")/../.."
[ "${1:-}" = --quick ] && shift
bin=${ZORSE_BIN:-build/release/bin}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$bin/verification-cost" --stages=32 --replicas=16 --repeat=1 --limit=1 --memory-limit=65536 --keep="$folder/many.zorse" | head -1
/usr/bin/python3 - "$bin/zorse-run" "$folder" "${1:-20}" "${2:-4096}" <<'EOF'
import json, resource, subprocess, sys, time
program, folder, seconds, mebibytes = sys.argv[1], sys.argv[2], float(sys.argv[3]), float(sys.argv[4])
begin = time.monotonic()
subprocess.run([program, folder + "/many.zorse", "--simulate", "--json", folder + "/figures.json"], check=True)
took = time.monotonic() - begin
memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
figures = json.load(open(folder + "/figures.json"))
print(f"{len(figures['devices'])} devices, {figures['steps']} steps of {figures['entries']} entries: {took:.1f} s (limit {seconds:g}), {memory:.0f} MiB (limit {mebibytes:g})")
sys.exit(0 if took <= seconds and memory <= mebibytes else 1)
EOF
