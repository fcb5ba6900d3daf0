#!/usr/bin/env bash
# Runs what make_suite.py made, on a machine with a GPU: check.sh. Prints a line for each check and writes report.json; fails when one of them does.
set -euo pipefail
cd "$(dirname "$0")"
mkdir -p bin
# With the loader and the C library that were carried along.
printf '#!/bin/sh\nhere=$(dirname "$(readlink -f "$0")")/..\nexec "$here"/lib/ld-linux-x86-64.so.2 --library-path "$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" "$here/zorse-run" "$@"\n' >bin/zorse-run
chmod +x bin/zorse-run zorse-run lib/ld-linux-x86-64.so.2
# cuBLASLt of a Python package, where the system has none.
for folder in $(python3 -c 'import glob, site; print(" ".join(f for p in site.getsitepackages() + [site.getusersitepackages()] for f in glob.glob(p + "/nvidia/*/lib") + glob.glob(p + "/torch/lib")))' 2>/dev/null); do
  LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$folder"
done
export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-} ZORSE_BIN=$PWD/bin
exec "${PYTHON:-python3}" check.py "$@"
