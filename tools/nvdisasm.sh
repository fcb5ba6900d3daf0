#!/usr/bin/env bash
# Downloads NVIDIA's disassembler, which is used to model the time of kernels that never ran: two
# Python packages, unpacked into .cache/nvdisasm. Prints the folder of nvdisasm and cuobjdump. Does
# not download again if they exist. Nothing else needs it.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=.cache/nvdisasm
if [ ! -x "$folder/bin/nvdisasm" ] || [ ! -x "$folder/bin/cuobjdump" ]; then
  mkdir -p "$folder/bin"
  python3 -m pip download --quiet --no-deps --dest "$folder" nvidia-cuda-nvdisasm==13.2.51 nvidia-cuda-cuobjdump==13.2.51 >&2 || { echo "nvdisasm: the Python packages nvidia-cuda-nvdisasm and nvidia-cuda-cuobjdump cannot be fetched (is there pip?)" >&2; exit 1; }
  python3 - "$folder" <<'PY'
import glob, os, sys, zipfile
for wheel in glob.glob(os.path.join(sys.argv[1], "*.whl")):
    with zipfile.ZipFile(wheel) as z:
        for name in z.namelist():
            if os.path.basename(name) in ("nvdisasm", "cuobjdump") and "/bin/" in name:
                with open(os.path.join(sys.argv[1], "bin", os.path.basename(name)), "wb") as f:
                    f.write(z.read(name))
    os.remove(wheel)
PY
  chmod +x "$folder/bin/nvdisasm" "$folder/bin/cuobjdump"
fi
echo "$PWD/$folder/bin"
