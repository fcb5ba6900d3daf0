#!/usr/bin/env bash
# Tries the claims of test/evidence/claims.toml, keeps what their commands printed in docs/evidence.jsonl and writes docs/evidence.md from it: tools/run-evidence.sh [--quick] [NAME...]
#   --quick      their quick forms: before a change is called done. Without names it does not run again what tools/run-tests.sh has passed at the same commit, with nothing changed
#   NAME         only these claims, such as random_tilings; the rows of the others stay as they are
#   --list       what there is, and what the quick forms leave out; runs nothing
#   --show       the commands of the claims, to run them by hand; runs nothing
#   --table      writes docs/evidence.md anew; runs nothing
#   --no-build   with the programs there are
# What a claim looks like: test/evidence/README.md. One that fails does not stop the others. Exits with 0 when all passed, 1 when one failed, 3 when none failed but some cannot be tried on
# this machine. What each printed stays in out/evidence.
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
