// Makes small synthetic models: a summary and functions without code, for tests of plans, programs,
// the verifier and the interpreter.
#pragma once

#include "bundle.pb.h"

namespace zorse::test {

struct SyntheticModel {
  bundle::ModelSummary summary;
  bundle::FunctionLibrary functions;
};

struct SyntheticOptions {
  int units = 4; ///< >= 2: the first unit reads the ids, the last one has the labels and the loss
  bool tied = true;   ///< the last unit also uses the first parameter of the first unit
  bool skip = true;   ///< every second unit also uses the first unit's value
  bool frozen = true; ///< a frozen table that the units in the middle use
  int moments = 2;
  int lossTerms = 1;
  double clipNorm = 1.0;
  /// Values with several users, some without gradients; parameters of arbitrary sets of units;
  /// inputs of any unit; units without parameters, saved blocks or workspace.
  bool irregular = false;
  bool copies = false;   ///< two thirds of the trained groups are read as bf16 copies, which owners
                         ///< cast
  bool scales = false;   ///< the loss is scaled, as in f16 models
  uint32_t sumTerms = 0; ///< adds functions that sum 2 to `sumTerms` terms, for direct transfers
                         ///< between GPUs
  bool splits = true;    ///< most units also have a split backward
  int64_t block = 0;     ///< elements of blocks that updates treat as a whole; 0: single elements
  uint32_t seed = 1;     ///< varies sizes and which optional arguments functions have
};

/// Every argument size is a multiple of 64 bytes per row, so that any range of rows starts aligned.
SyntheticModel makeModel(const SyntheticOptions &options);

} // namespace zorse::test
