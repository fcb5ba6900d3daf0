// A case that was compiled where there is no GPU, to be run where there is one and no compiler: code, arguments, and what results have to be.
#pragma once

#include "bundle.pb.h"

#include <cstdint>
#include <string>
#include <vector>

namespace zorse::conformance {

/// Of a result, element by element, in units of its type; not a number: anything that is none.
struct ExpectedResult {
  uint32_t slot = 0;
  uint64_t offset = 0;              ///< bytes into the slot
  std::string type;                 ///< "f32", "bf16", "f16", "f64"
  std::vector<float> middle, error; ///< within `error` of `middle`, and what f32 rounds of them; infinite: anything
};

struct CaseRun {
  int64_t rows = 1, sampleBase = 0;
  uint64_t instanceBase = 0;
  std::vector<uint64_t> bytes;    ///< of slots
  std::vector<std::string> slots; ///< what they hold before; of a case for time: empty
  std::vector<uint8_t> overwrite; ///< one per slot
  std::vector<ExpectedResult> results;
};

struct CaseFile {
  std::string name; ///< "softmax, bf16, shape 3 (rows 5, columns 257)"
  bundle::BodyLibrary library;
  std::string object; ///< bytes of library.objects(0)
  std::vector<CaseRun> runs;

  /// \return  what is wrong with the file; empty: nothing
  std::string write(const std::string &path) const;
  std::string read(const std::string &path);
};

} // namespace zorse::conformance
