// A case that is compiled on a machine without a GPU and run on a machine with a GPU and without a
// compiler: code, arguments and expected results.
#pragma once

#include "bundle.pb.h"

#include <cstdint>
#include <string>
#include <vector>

namespace zorse::conformance {

/// Expected elements of a result, in its type. NaN matches every NaN.
struct ExpectedResult {
  uint32_t argument = 0;
  uint64_t offset = 0; ///< byte offset in the argument
  std::string type;    ///< "f32", "bf16", "f16", "f64"
  std::vector<float> middle,
      error; ///< `middle` +- `error`, plus rounding of both to f32; infinite error: no limit
};

struct CaseRun {
  int64_t rows = 1, sampleBase = 0;
  uint64_t rngIdBase = 0;
  std::vector<uint64_t> bytes;        ///< size of every argument
  std::vector<std::string> arguments; ///< contents of arguments before the run; empty in timed
                                      ///< cases
  std::vector<uint8_t> overwrite;     ///< one per argument
  std::vector<ExpectedResult> results;
};

struct CaseFile {
  std::string name; ///< "softmax, bf16, shape 3 (rows 5, columns 257)"
  bundle::FunctionLibrary library;
  std::string object; ///< bytes of library.objects(0)
  std::vector<CaseRun> runs;

  /// \return  the error of the file; empty if there is none
  std::string write(const std::string &path) const;
  std::string read(const std::string &path);
};

} // namespace zorse::conformance
