#!/usr/bin/env bash
# Verifies the claims of test/evidence/claims.toml, stores the output of their commands in docs/evidence.jsonl and writes docs/internals/results.md from it:
#   tools/run-evidence.sh [--quick] [NAME...]
#   --quick      runs the quick forms; use it before a change is finished. Without names it skips claims that tools/run-tests.sh has passed at the same commit, without changes
#   NAME         runs only these claims, such as random_tilings; the rows of the others do not change
#   --list       lists all claims and the parts that the quick forms omit; runs nothing
#   --show       prints the commands of the claims, to run them by hand; runs nothing
#   --table      rewrites docs/internals/results.md; runs nothing
#   --no-build   uses the existing programs
# Format of a claim: test/evidence/README.md. A claim that fails does not stop the others. Exit code: 0 if all passed, 1 if one failed, 3 if none failed but some cannot run on
# this machine. The output of each claim is stored in out/evidence.
set -euo pipefail
cd "$(dirname "$0")/.."
build=1 words=()
for word in "$@"; do
  case "$word" in
    --no-build) build=0 ;;
    --list | --show | --table | --help) build=0; words+=("$word") ;;
    *) words+=("$word") ;;
  esac
done
if [ $build = 1 ]; then
  tools/install.sh
  tools/build.sh release
fi
exec /usr/bin/python3 tools/evidence.py "${words[@]}"
