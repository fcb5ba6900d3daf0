// Faults to inject into PTX text.
#pragma once

#include "RunCase.h"

namespace zorse::conformance {

/// Kernels to inject faults into.
struct PtxSubject {
  std::string name;
  std::function<Outcome(Machine &machine)> run;
};

/// One shape of a class of the suite.
PtxSubject suiteSubject(const std::string &name, const std::string &type, int shape);
/// Sums of 150 rows, for which several blocks store partial sums.
PtxSubject columnSums();
/// Attention forward and backward on tensor cores with head size `size`. The 150 queries are
/// several tiles of every variant; the last tile is partial.
PtxSubject attentionSubject(int size, const std::string &type, const std::string &attributes);
/// Two queries with weights for many keys that are subnormal in f32.
PtxSubject spreadAttention();

/// Cases with every kind of synchronization in their kernels, between several blocks and in loops
/// with several iterations.
std::vector<PtxSubject> synchronizedSubjects(bool quick);

/// Whether a line is a barrier of a block or a warp, a wait for copies, a commit of copies or a
/// fence.
bool isSynchronization(const std::string &line);

/// Why removing the synchronization at this position of the text has no effect; null if it has an
/// effect.
const char *whyHarmless(const std::string &text, size_t at);

/// Replaces the `occurrence`th match of `pattern` in a line (from 1; negative: from the end; 0:
/// every match) by `replacement`. Both have the syntax of std::regex.
struct PtxFault {
  const char *name;
  PtxSubject subject;
  const char *pattern, *replacement;
  int occurrence = 1;

  /// \returns false if the pattern does not match
  bool plant(std::string &text) const;
};

/// \param hasTensorCores  also return faults of kernels that use tensor cores
std::vector<PtxFault> ptxFaults(bool hasTensorCores);

} // namespace zorse::conformance
