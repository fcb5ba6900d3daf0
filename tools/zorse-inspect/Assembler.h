// NVIDIA's assembler, which alone knows how many registers a kernel takes. Nothing but this view needs it.
#pragma once

#include <map>
#include <optional>
#include <string>

namespace zorse::inspect {

struct AssembledKernel {
  int registers = 0, spilledBytes = 0, sharedBytes = 0;
};

/// The first that is there: `given`, $PTXAS, what tools/ptxas.sh fetched into .cache/ptxas of the sources that this program was built from, the one
/// on the PATH. Empty: there is none, or the one that was asked for is not there, which `error` then says.
std::string findAssembler(const std::string &given, std::string &error);

/// Every kernel of a file, by symbol; nothing if the assembler refuses it, with the first of what it said in `error`.
std::optional<std::map<std::string, AssembledKernel>> assemble(const std::string &assembler, const std::string &arch, const std::string &file,
                                                               std::string &error);

} // namespace zorse::inspect
