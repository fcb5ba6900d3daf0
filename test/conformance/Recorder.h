// A Machine that writes cases to files instead of running them, for a host with a GPU and without a
// compiler (CaseFile.h).
#pragma once

#include "RunCase.h"

namespace zorse::conformance {

/// \param folder  existing directory for one file per case
/// \param timed   write only sizes and code, for measuring times but not results
std::unique_ptr<Machine> makeRecorder(const std::string &directory, const std::string &arch,
                                      bool timed);

/// Attention and its gradient over whole sequences with the sizes of GPT-2 and LLaMA. \param
/// emulated  use short sequences
std::vector<KernelClass> timedAttention(bool emulated);

} // namespace zorse::conformance
