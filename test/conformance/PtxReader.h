// Kernels by the text of their PTX (test/emulator/ptx).
#pragma once

#include "Program.h"
#include "RunCase.h"

#include <map>

namespace zorse::conformance {

/// A body that has been run, so that it can be run again with another text.
struct RecordedRun {
  bundle::Body body;
  int64_t rows = 1, sampleBase = 0;
  uint64_t instanceBase = 0;
  std::vector<uint8_t> overwrite;
  std::vector<std::vector<char>> before, after; ///< by slot
};

struct Recording {
  std::string text; ///< of the PTX
  std::vector<RecordedRun> runs;
};

struct PtxOptions {
  std::string arch = "sm_80";
  uint64_t seed = 1;                                                           ///< of the order of blocks, warps and lanes
  Recording *recording = nullptr;                                              ///< gets what is run
  std::map<std::string, emulator::ptx::Program::Coverage> *coverage = nullptr; ///< by opcode
};

/// Beside the emulator: what kernels write has to have the same bits.
std::unique_ptr<Machine> makePtxReader(const PtxOptions &options);

/// Runs a body again. \returns why the text cannot be loaded, a finding, or the first element that differs; empty: none of these
std::string runAgain(const std::string &text, const RecordedRun &run, uint64_t seed);

} // namespace zorse::conformance
