// What a rank finds where it runs, published to all ranks at the start and compared with what the bundle was compiled for.
#pragma once

#include "zorse/runtime/Bundle.h"

#include <cstdint>
#include <string>
#include <vector>

namespace zorse::runtime {

/// One rank's own view. Equal `host` means the same memory and the same cores.
struct RankFacts {
  std::string host;      ///< name and boot id: two containers of one machine count as one host
  std::string processor; ///< what its device runs: Driver.architecture
  int cores = 0;         ///< that this process may use
  uint64_t memory = 0;   ///< bytes that this process may have: of the machine, or of its control group where that is less
  std::string bundle;    ///< Bundle.hash
  std::string run;       ///< what the run was told, "steps=100 lr=0.001 ...": must be equal everywhere
};

/// Facts of this process, without `bundle` and `run`. \param kind  of its device
RankFacts factsOfThisProcess(const std::string &kind = "cpu");

std::string encodeFacts(const RankFacts &facts);
Result<RankFacts> decodeFacts(const std::string &text);

/// Compares everyone's facts (by rank = device) with the bundle. An error lists every mismatch: another bundle, other options, a processor that
/// cannot run the kernels, devices of one host that together plan more memory than it has. What is merely unwise (more threads than cores) goes to
/// `note`.
Status checkHardware(const Bundle &bundle, const std::vector<RankFacts> &ranks, std::string *note);

} // namespace zorse::runtime
