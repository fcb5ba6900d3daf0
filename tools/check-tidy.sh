#!/usr/bin/env bash
# Runs clang-tidy with the checks of .clang-tidy: tools/check-tidy.sh [--all | --since COMMIT] [--preset PRESET]
#   (default)   lines that differ from the main branch, or from the previous commit on the main branch
#   --since C   lines that differ from commit C
#   --all       all lines of all sources; takes an hour on two CPUs
# Changed headers are checked with the changed sources that include them. Needs a configured and built folder (tools/build.sh) for generated headers.
set -euo pipefail
cd "$(dirname "$0")/.."
preset=release since='' all=0
while [ $# -gt 0 ]; do
  case "$1" in
    --all) all=1 ;;
    --since) since=$2; shift ;;
    --preset) preset=$2; shift ;;
    *) echo "usage: tools/check-tidy.sh [--all | --since COMMIT] [--preset PRESET]"; exit 2 ;;
  esac
  shift
done
tidy=$(command -v clang-tidy-22) || { echo "clang-tidy-22 is not installed (tools/install.sh --checks)"; exit 2; }
[ -f "build/$preset/compile_commands.json" ] || { echo "build/$preset is not configured (tools/build.sh $preset)"; exit 2; }
if [ $all = 1 ]; then
  mapfile -t changed < <(git ls-files '*.cpp')
else
  if [ -z "$since" ]; then
    since=$(git merge-base HEAD origin/main 2>/dev/null || git merge-base HEAD main 2>/dev/null || true)
    [ -n "$since" ] && [ "$since" != "$(git rev-parse HEAD)" ] || since=HEAD~1
  fi
  git rev-parse --verify --quiet "$since^{commit}" >/dev/null || { echo "no commit $since to compare with: nothing is checked"; exit 0; }
  mapfile -t changed < <(git diff --name-only --diff-filter=d "$since" -- '*.cpp')
fi
# Checks only sources of this build and only changed lines, so that existing findings do not reject
# a change.
mapfile -t files < <(printf '%s\n' "${changed[@]}" | /usr/bin/python3 -c '
import json, os, sys
known = {os.path.relpath(os.path.join(e["directory"], e["file"])) for e in json.load(open(sys.argv[1]))}
print("\n".join(f for f in sys.stdin.read().split() if f in known))' "build/$preset/compile_commands.json")
[ ${#files[@]} -gt 0 ] && [ -n "${files[0]}" ] || { echo "clang-tidy: no source has changed"; exit 0; }
filter=()
[ $all = 1 ] || filter=("--line-filter=$(git diff -U0 --diff-filter=d "$since" -- '*.cpp' '*.h' | /usr/bin/python3 -c '
import json, re, sys
lines = {}
for line in sys.stdin:
    if line.startswith("+++ b/"):
        name = line[6:].strip()
    elif found := re.match(r"@@ \S+ \+(\d+)(?:,(\d+))? @@", line):
        first, count = int(found[1]), int(found[2] or 1)
        if count:
            lines.setdefault(name, []).append([first, first + count - 1])
print(json.dumps([{"name": name, "lines": ranges} for name, ranges in lines.items()]))')")
echo "clang-tidy: ${#files[@]} sources"
printf '%s\0' "${files[@]}" | xargs -0 -P "$(nproc)" -n 1 "$tidy" -p "build/$preset" --quiet --warnings-as-errors='*' "${filter[@]}" 2>/dev/null ||
  { echo "clang-tidy has findings."; exit 1; }
