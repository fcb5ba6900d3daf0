#!/usr/bin/env bash
# Compiler launcher for a precompiled header: pch-launcher.sh COMPILER ARGUMENTS... Also writes
# OUTPUT.sum, which ccache hashes instead of the output: the contents of all its headers and the
# flags without paths. Precompiled headers with the same contents in two directories differ by a few
# bytes (paths, order); with OUTPUT.sum they share cache entries.
set -euo pipefail
output='' depfile='' previous=''
for argument in "$@"; do
  case "$previous" in
    -o) output=$argument ;;
    -MF) depfile=$argument ;;
  esac
  previous=$argument
done
rm -f "$output.sum"
"$@"
{
  printf '%s\n' "$@" | grep -v /
  sed -e 's/^[^:]*://' -e 's/\\$//' "$depfile" | tr -s ' ' '\n' | sed '/^$/d' | xargs cat
} | sha256sum >"$output.sum"
