// Bugs to be planted into the text of PTX.
#pragma once

#include <string>
#include <vector>

namespace zorse::conformance {

/// A shape of a class of kernels in a type.
struct PtxSubject {
  const char *name, *type;
  int shape;
};

/// Cases whose kernels have every kind of synchronization, in loops that go round several times.
std::vector<PtxSubject> synchronizedSubjects(bool quick);

/// Whether a line is a barrier of a block or a warp, a wait for copies, a commit of copies or a fence.
bool isSynchronization(const std::string &line);

/// Why leaving out the synchronization at this place of the text changes nothing; null: it does.
const char *whyHarmless(const std::string &kernel, const std::string &text, size_t at);

/// Replaces what `pattern` finds in a line for the `occurrence`th time (from 1; below 0: from the end) by `replacement`, both as std::regex takes
/// them.
struct PtxFault {
  const char *name;
  PtxSubject subject;
  const char *pattern, *replacement;
  int occurrence = 1;

  /// \returns false where the text has no such place
  bool plant(std::string &text) const;
};

std::vector<PtxFault> ptxFaults();

} // namespace zorse::conformance
