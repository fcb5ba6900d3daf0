#!/usr/bin/env bash
# Runs what make_suite.py made, on a machine with a GPU: check.sh. Prints a line for each check and writes report.json; fails when one of them does.
set -euo pipefail
cd "$(dirname "$0")"
mkdir -p bin
chmod +x zorse-run libc/ld-linux-x86-64.so.2
if LD_LIBRARY_PATH=$PWD/lib ./zorse-run --version >/dev/null 2>&1; then
  printf '#!/bin/sh\nhere=$(dirname "$(readlink -f "$0")")/..\nLD_LIBRARY_PATH="$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" exec "$here/zorse-run" "$@"\n' >bin/zorse-run
else # this machine's C library is older: with the loader and the library that were carried along. Processes that zorse-run starts do not have them
  echo "the C library here is older than zorse-run needs: the carried one is used, and --processes is left out"
  printf '#!/bin/sh\nhere=$(dirname "$(readlink -f "$0")")/..\nexec "$here"/libc/ld-linux-x86-64.so.2 --library-path "$here/libc:$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" "$here/zorse-run" "$@"\n' >bin/zorse-run
  export ZORSE_NO_PROCESSES=1
fi
chmod +x bin/zorse-run
# cuBLASLt of a Python package, where the system has none.
for folder in $(python3 -c 'import glob, site; print(" ".join(f for p in site.getsitepackages() + [site.getusersitepackages()] for f in glob.glob(p + "/nvidia/*/lib") + glob.glob(p + "/torch/lib")))' 2>/dev/null); do
  LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$folder"
done
export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-} ZORSE_BIN=$PWD/bin
exec "${PYTHON:-python3}" check.py "$@"
