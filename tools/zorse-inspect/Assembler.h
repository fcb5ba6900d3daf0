// Runs NVIDIA's assembler (ptxas), which alone knows how many registers a kernel uses. Only the
// kernel view needs it.
#pragma once

#include "zorse/Base/Status.h"

#include <map>
#include <string>

namespace zorse::inspect {

struct AssembledKernel {
  int registers = 0, spilledBytes = 0, sharedBytes = 0;
};

/// Returns the first assembler that exists: `given`, $PTXAS, the one that tools/ptxas.sh downloaded
/// into .cache/ptxas of the source tree of this program, the one on the PATH. Empty if there is
/// none. Returns an error if `given` or $PTXAS does not exist.
Result<std::string> findAssembler(const std::string &given);

/// Assembles a file and returns its kernels by symbol. If the assembler fails, the error contains
/// the beginning of its output.
Result<std::map<std::string, AssembledKernel>>
assemble(const std::string &assembler, const std::string &arch, const std::string &file);

} // namespace zorse::inspect
