#!/bin/sh
# Prints plausible ptxas statistics for every kernel of a file: ptxas.sh -arch=ARCH -v FILE -o OUT
sed -n 's/^\.visible \.entry \(.*\)($/\1/p' "$3" | while read -r kernel; do
  spilled=0 registers=32 shared=
  case $kernel in
    mulf_addf_negf_exp_divf_subf_*) ;;
    mulf_addf_negf_exp_divf_*) spilled=24 registers=200 ;;
    reduce_columns_*) registers=64 shared=" 20480 bytes smem," ;;
  esac
  echo "ptxas info    : Compiling entry function '$kernel' for '${1#-arch=}'"
  echo "    $spilled bytes stack frame, $spilled bytes spill stores, $spilled bytes spill loads"
  echo "ptxas info    : Used $registers registers, used 1 barriers,$shared 400 bytes cmem[0]"
done >&2
