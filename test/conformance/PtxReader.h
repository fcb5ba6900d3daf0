// Runs kernels by interpreting their PTX text (test/emulator/ptx).
#pragma once

#include "Program.h"
#include "RunCase.h"

#include <map>

namespace zorse::conformance {

/// Records a run of a function, so that it can be repeated with another text.
struct RecordedRun {
  bundle::CompiledFunction function;
  int64_t rows = 1, sampleBase = 0;
  uint64_t rngIdBase = 0;
  std::vector<uint8_t> overwrite;
  std::vector<std::vector<char>> before, after; ///< by argument
};

struct Recording {
  std::string text; ///< PTX text
  std::vector<RecordedRun> runs;
};

struct PtxOptions {
  std::string arch = "sm_80";
  uint64_t seed = 1;              ///< seed of the order of blocks, warps and lanes
  Recording *recording = nullptr; ///< receives the runs
  std::map<std::string, emulator::ptx::Program::Coverage> *coverage = nullptr; ///< by opcode
};

/// Makes a machine that runs PTX next to the emulator. The kernels must write the same bits.
std::unique_ptr<Machine> makePtxReader(const PtxOptions &options);

/// Runs a function again. \returns why the text cannot be loaded, a finding, or the first element
/// that differs; empty if the run is correct
std::string runAgain(const std::string &text, const RecordedRun &run, uint64_t seed);

} // namespace zorse::conformance
