// Which plans the functions of a bundle can run: a bundle has only those that its own plan calls.
// Internal to Planning.
#pragma once

#include "zorse/Planning/Strategy.h"

#include <cstdint>
#include <vector>

namespace zorse::planning {

/// The optional functions of a library. Immutable; threads may share it.
class CompiledFunctions {
public:
  /// \param functions  null: nothing is compiled yet, and all functions can be
  CompiledFunctions(const bundle::ModelSummary &summary, const bundle::FunctionLibrary *functions);

  /// Whether every unit that splits has both parts of its backward.
  bool splitBackward() const { return splits; }
  /// Whether cells that end with a unit can recompute their activations.
  bool recomputes(int32_t lastUnit) const {
    return recomputing[static_cast<size_t>(lastUnit)] != 0;
  }
  /// Whether all functions that a plan calls exist.
  bool canRun(const step::Plan &plan) const;

private:
  const bundle::ModelSummary &summary;
  bool splits = true, all = true;
  std::vector<uint8_t> recomputing; ///< per unit
};

} // namespace zorse::planning
