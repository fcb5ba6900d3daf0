// Checks an imported loss numerically. Evaluates the head of the file's graph for a few samples,
// node by node with ONNX semantics. Compares the result with the imported terms, evaluated for
// every division of these samples into cells.
#pragma once

#include "HeadFrontier.h"
#include "HeadProgram.h"

#include "zorse/Import/ONNX/Import.h"

#include <string>
#include <vector>

namespace zorse::onnx_import {

struct HeadSource {
  const FlatGraph &graph;
  LoadedModel &model;
  const std::vector<HeadValue> &values; ///< by value number
  mutable mlir::func::FuncOp function;  ///< @model
  const std::vector<WeightSource> &weights;
  int loss = -1;             ///< value number
  int64_t fixedSamples = 0;  ///< number of rows that the file fixes; 0: any number
  int64_t samplesPerRow = 1; ///< of the file
  double tolerance = 1e-9;   ///< relative
  HeadDamage damage = HeadDamage::None;
};

struct HeadOutcome {
  std::string error; ///< the import is wrong
  std::string note;  ///< what was compared, or why nothing was compared
};

HeadOutcome checkHead(const HeadSource &source);

} // namespace zorse::onnx_import
