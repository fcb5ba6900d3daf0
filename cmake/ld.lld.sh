#!/bin/sh
# The linker of an installation, with the libraries next to it (cmake/ZorseInstall.cmake).
here=$(dirname "$(readlink -f "$0")")
LD_LIBRARY_PATH=$here/../lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} exec "$here/../libexec/zorse/ld.lld" "$@"
