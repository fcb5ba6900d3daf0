// Small made-up models: what summary and bodies say, without any code behind them. For tests of plans, programs, the verifier and the interpreter.
#pragma once

#include "bundle.pb.h"

namespace zorse::test {

struct SyntheticModel {
  bundle::ModelSummary summary;
  bundle::BodyLibrary bodies;
};

struct SyntheticOptions {
  int units = 4;      ///< >= 2: the first reads the ids, the last has the labels and the loss
  bool tied = true;   ///< the first parameter of the first unit is used by the last too
  bool skip = true;   ///< the first unit's value is used by every second unit besides the next one
  bool frozen = true; ///< a frozen table used by the units in the middle
  int moments = 2;
  int lossTerms = 1;
  double clipNorm = 1.0;
  bool skipNonFinite = true;
  /// Values of several users, some without gradients; parameters of any set of units; inputs of any unit; units without parameters, saved blocks or
  /// workspace.
  bool irregular = false;
  bool copies = false;   ///< two of three trained groups are read as copies in bf16, which owners cast
  bool scales = false;   ///< the loss is scaled, as of models in f16
  uint32_t sumTerms = 0; ///< bodies that add 2 to so many terms, for GPUs that exchange directly
  bool splits = true;    ///< most units have their backward in two parts besides
  uint32_t seed = 1;     ///< varies sizes and which optional slots bodies have
};

/// Every slot size is a multiple of 64 bytes per row, so that any range of rows starts aligned.
SyntheticModel makeModel(const SyntheticOptions &options);

} // namespace zorse::test
