#!/usr/bin/env bash
# Runs the validation kit (make_kit.sh) on a machine with a GPU: run.sh [STEP ...]. Prints a line for each check; writes
# report.json and report.html after each step. Fails if a check fails.
set -euo pipefail
cd "$(dirname "$0")"
mkdir -p bin
chmod +x programs/* libc/ld-linux-x86-64.so.2
if LD_LIBRARY_PATH=$PWD/lib programs/zorse-run --version >/dev/null 2>&1; then
  start='LD_LIBRARY_PATH="$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" exec "$here/programs'
else # this machine's C library is older: use the loader and the library in the kit. Processes that zorse-run starts do not use them
  echo "the C library here is older than zorse-run needs: the carried one is used, and --spawn is left out"
  start='exec "$here"/libc/ld-linux-x86-64.so.2 --library-path "$here/libc:$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" "$here/programs'
  export ZORSE_NO_PROCESSES=1
fi
for program in programs/*; do
  name=$(basename "$program")
  printf '#!/bin/sh\nhere=$(dirname "$(readlink -f "$0")")/..\n%s/%s" "$@"\n' "$start" "$name" >"bin/$name"
  chmod +x "bin/$name"
done
# cuBLASLt of a Python package, if the system has none.
for folder in $(python3 -c 'import glob, site; print(" ".join(f for p in site.getsitepackages() + [site.getusersitepackages()] for f in glob.glob(p + "/nvidia/*/lib") + glob.glob(p + "/torch/lib")))' 2>/dev/null); do
  LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$folder"
done
export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-} ZORSE_BIN=$PWD/bin
exec "${PYTHON:-python3}" run.py "$@"
