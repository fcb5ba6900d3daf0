#!/usr/bin/env bash
# Installs the packages for building and testing on Debian 12; does nothing if all are installed: tools/install.sh [--launchers] [--checks] [--browser]
#   --launchers   also Open MPI, Slurm, munge and PMIx; the tests of these launchers are skipped otherwise
#   --checks      also clang-format and clang-tidy, for tools/check-format.sh and tools/check-tidy.sh
#   --browser     also a browser; the test of pages is skipped otherwise
set -euo pipefail
packages=(
  build-essential cmake ninja-build ccache git pkg-config
  libmlir-22-dev mlir-22-tools llvm-22-dev clang-22 lld-22 llvm-22-tools libclang-rt-22-dev
  protobuf-compiler libprotobuf-dev nlohmann-json3-dev libyaml-cpp-dev libcli11-dev libxxhash-dev
  libdnnl-dev libopenblas-pthread-dev libgloo-dev libssl-dev libgtest-dev libbenchmark-dev
  coinor-libclp-dev
  python3 python3-numpy python3-venv
)
for word in "$@"; do
  case "$word" in
    --launchers) packages+=(openmpi-bin slurm-wlm munge libpmix-dev iproute2) ;;
    --checks) packages+=(clang-format-22 clang-tidy-22) ;;
    --browser) packages+=(chromium-headless-shell) ;;
    *) echo "usage: tools/install.sh [--launchers] [--checks] [--browser]"; exit 2 ;;
  esac
done
missing=()
for p in "${packages[@]}"; do
  dpkg-query -W -f='${Status}' "$p" 2>/dev/null | grep -q 'install ok installed' || missing+=("$p")
done
if [ ${#missing[@]} -eq 0 ]; then exit 0; fi
echo "Installing ${#missing[@]} packages: ${missing[*]}"
as_root=()
[ "$(id -u)" -eq 0 ] || as_root=(sudo)
"${as_root[@]}" apt-get update -qq
DEBIAN_FRONTEND=noninteractive "${as_root[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
