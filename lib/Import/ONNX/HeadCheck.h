// Proves an imported loss by numbers: the head of the file's graph, evaluated node by node as ONNX says for a few samples, against the imported
// terms, evaluated for every division of these samples into cells.
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
  int loss = -1;            ///< value number
  int64_t fixedSamples = 0; ///< of a file for one number of samples; 0: any
  double tolerance = 1e-9;  ///< relative
  HeadDamage damage = HeadDamage::None;
};

struct HeadOutcome {
  std::string error; ///< the import is wrong
  std::string note;  ///< what was compared, or why nothing was
};

HeadOutcome checkHead(const HeadSource &source);

} // namespace zorse::onnx_import
