#!/usr/bin/env bash
# Launcher of the compiler for a precompiled header: pch-launcher.sh COMPILER ARGUMENTS... Beside the output it writes OUTPUT.sum, which ccache hashes in place of the
# output itself: the contents of every header in it and the flags without paths. Two directories' precompiled headers of the same contents differ by
# a few bytes (paths, order); with the sum they share the cache.
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
