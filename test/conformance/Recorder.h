// A machine that writes cases down instead of running them, for a machine with a GPU and no compiler (CaseFile.h).
#pragma once

#include "RunCase.h"

namespace zorse::conformance {

/// \param folder  gets a file for each case; it exists
/// \param timed   sizes and code alone: for how long kernels take, not for what they compute
std::unique_ptr<Machine> makeRecorder(const std::string &folder, const std::string &arch, bool timed);

/// Attention over whole sequences, and its gradient, at the sizes of GPT-2 and LLaMA. \param emulated  short ones instead
std::vector<KernelClass> timedAttention(bool emulated);

} // namespace zorse::conformance
