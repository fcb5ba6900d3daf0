// Bugs to be planted into the text of PTX.
#pragma once

#include "RunCase.h"

namespace zorse::conformance {

/// Kernels to plant bugs in.
struct PtxSubject {
  std::string name;
  std::function<Outcome(Machine &machine)> run;
};

/// A shape of a class of the suite.
PtxSubject suiteSubject(const std::string &name, const std::string &type, int shape);
/// Sums of 150 rows, for which several blocks leave their parts.
PtxSubject columnSums();
/// Forward and backward on tensor cores with heads of `size`: 150 queries are several tiles of every variant, the last of which is not whole.
PtxSubject attentionSubject(int size, const std::string &type, const std::string &attributes);
/// Two queries, whose weights for many keys are below the normal numbers of f32.
PtxSubject spreadAttention();

/// Cases whose kernels have every kind of synchronization, between several blocks and in loops that go round several times.
std::vector<PtxSubject> synchronizedSubjects(bool quick);

/// Whether a line is a barrier of a block or a warp, a wait for copies, a commit of copies or a fence.
bool isSynchronization(const std::string &line);

/// Why leaving out the synchronization at this place of the text changes nothing; null: it does.
const char *whyHarmless(const std::string &text, size_t at);

/// Replaces what `pattern` finds in a line for the `occurrence`th time (from 1; below 0: from the end; 0: every time) by `replacement`, both as
/// std::regex takes them.
struct PtxFault {
  const char *name;
  PtxSubject subject;
  const char *pattern, *replacement;
  int occurrence = 1;

  /// \returns false where the text has no such place
  bool plant(std::string &text) const;
};

/// \param hasTensorCores  also bugs in kernels that use them
std::vector<PtxFault> ptxFaults(bool hasTensorCores);

} // namespace zorse::conformance
