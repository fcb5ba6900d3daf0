// NVIDIA's assembler, which alone knows how many registers a kernel takes. Nothing but this view needs it.
#pragma once

#include "zorse/Base/Status.h"

#include <map>
#include <string>

namespace zorse::inspect {

struct AssembledKernel {
  int registers = 0, spilledBytes = 0, sharedBytes = 0;
};

/// The first that is there: `given`, $PTXAS, what tools/ptxas.sh fetched into .cache/ptxas of the sources that this program was built from, the one
/// on the PATH. Empty: there is none. An error: the one that was asked for is not there.
Result<std::string> findAssembler(const std::string &given);

/// Every kernel of a file, by symbol. An error if the assembler refuses it: the first of what it said.
Result<std::map<std::string, AssembledKernel>> assemble(const std::string &assembler, const std::string &arch, const std::string &file);

} // namespace zorse::inspect
