// The arguments that the launches of a compiled function access.
#pragma once

#include "bundle.pb.h"

#include <vector>

namespace zorse::bundle {

/// Calls f(Pointer) for every operand of a launch.
template <typename F> void forEachPointer(const Launch &launch, F f) {
  for (const Pointer &pointer : launch.kernel().operands())
    f(pointer);
  for (const Pointer &pointer : launch.library().operands())
    f(pointer);
  if (!launch.has_matmul())
    return;
  f(launch.matmul().a());
  f(launch.matmul().b());
  f(launch.matmul().c());
  if (launch.matmul().has_bias())
    f(launch.matmul().bias());
}

/// Returns by segment (number of exchanges before a launch) and argument whether calls of the
/// segment bind the argument; empty: the function has no exchanges. Targets access arguments that
/// are only read, and the workspace, in different segments, so these are bound in all.
inline std::vector<std::vector<bool>> argumentsOfSegments(const CompiledFunction &function) {
  std::vector<bool> everywhere(size_t(function.arguments_size()), false);
  for (int a = 0; a < function.arguments_size(); ++a)
    everywhere[size_t(a)] = function.arguments(a).mode() == READ ||
                            function.arguments(a).kind() == WORKSPACE;
  std::vector<std::vector<bool>> segments{everywhere};
  for (const Launch &launch : function.launches()) {
    if (launch.has_exchange())
      segments.push_back(everywhere);
    forEachPointer(launch, [&](const Pointer &pointer) {
      if (pointer.argument() < uint32_t(function.arguments_size()))
        segments.back()[pointer.argument()] = true;
    });
  }
  return segments.size() > 1 ? segments : std::vector<std::vector<bool>>();
}

} // namespace zorse::bundle
