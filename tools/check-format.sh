#!/usr/bin/env bash
# Checks that every C and C++ file is formatted by clang-format (.clang-format): tools/check-format.sh [--fix] [FILES...]
#   --fix   formats the files
#   FILES   files to check; default: all files tracked by git
set -euo pipefail
cd "$(dirname "$0")/.."
mode=(--dry-run --Werror)
[ "${1:-}" != --fix ] || { mode=(-i); shift; }
format=$(command -v clang-format-22) || { echo "clang-format-22 is not installed (tools/install.sh --checks)"; exit 2; }
if [ $# -gt 0 ]; then files=("$@"); else mapfile -t files < <(git ls-files '*.c' '*.cpp' '*.h'); fi
[ $# -gt 0 ] || while IFS= read -r script; do bash -n "$script" || { echo "$script: not valid Bash"; exit 1; }; done < <(git ls-files '*.sh')
printf '%s\0' "${files[@]}" | xargs -0 -P "$(nproc)" -n 40 "$format" "${mode[@]}" || { echo "Not formatted: tools/check-format.sh --fix fixes it."; exit 1; }
