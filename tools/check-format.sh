#!/usr/bin/env bash
# Whether every C and C++ file is as clang-format writes it (.clang-format): tools/check-format.sh [--fix] [FILES...]
#   --fix   writes them so
#   FILES   only these; otherwise all that git knows
set -euo pipefail
cd "$(dirname "$0")/.."
mode=(--dry-run --Werror)
[ "${1:-}" != --fix ] || { mode=(-i); shift; }
format=$(command -v clang-format-22) || { echo "clang-format-22 is not installed (tools/install.sh --checks)"; exit 2; }
if [ $# -gt 0 ]; then files=("$@"); else mapfile -t files < <(git ls-files '*.c' '*.cpp' '*.h'); fi
printf '%s\0' "${files[@]}" | xargs -0 -P "$(nproc)" -n 40 "$format" "${mode[@]}" || { echo "Not formatted: tools/check-format.sh --fix mends it."; exit 1; }
