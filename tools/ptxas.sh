#!/usr/bin/env bash
# Downloads NVIDIA's assembler, which is used to check that GPU kernels assemble: a Python package
# of 40 MB, unpacked into .cache/ptxas. Prints the path of ptxas. Does not download again if it
# exists. Nothing else needs it.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=.cache/ptxas
ptxas=$folder/nvidia/cuda_nvcc/bin/ptxas
if [ ! -x "$ptxas" ]; then
  mkdir -p "$folder"
  python3 -m pip download --quiet --no-deps --dest "$folder" nvidia-cuda-nvcc-cu12==12.9.86 >&2 || { echo "ptxas: the Python package nvidia-cuda-nvcc-cu12 cannot be fetched (is there pip?)" >&2; exit 1; }
  python3 - "$folder" <<'PY'
import glob, os, sys, zipfile
(wheel,) = glob.glob(os.path.join(sys.argv[1], "*.whl"))
with zipfile.ZipFile(wheel) as z:
    z.extractall(sys.argv[1], [n for n in z.namelist() if n.endswith("/bin/ptxas")])
os.remove(wheel)
PY
  chmod +x "$ptxas"
fi
echo "$PWD/$ptxas"
