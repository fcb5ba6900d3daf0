// Runs kernels given as PTX text.
#pragma once

#include "Program.h"

#include <string>
#include <vector>

namespace zorse::test {

/// Returns a kernel `k` with the parameters `out` and `in`, addresses of 4-byte words. %r, %rd, %f,
/// %rs and %p are declared; %rd1 is `out`, %rd2 is `in`, %r1 the thread index and %rd3 four times
/// the thread index.
std::string ptxKernel(const std::string &body, const std::string &variables = "");

struct PtxRun {
  std::vector<std::string> findings; ///< or the error from loading
  std::vector<uint32_t> out;

  /// Whether all findings are of one kind, and there is at least one.
  bool hasOnly(const std::string &kind) const;
  std::string first() const { return findings.empty() ? "" : findings.front(); }
};

struct PtxGrid {
  uint32_t blocks = 1, threads = 32;
  std::vector<uint32_t> in;
  size_t out = 32; ///< number of output words
  uint64_t seed = 1;
  bool outIsDefined = true;
};

PtxRun runPtx(const std::string &text, const PtxGrid &grid = {});

} // namespace zorse::test
