// What a value of the file's graph is while it is interpreted.
#pragma once

#include "Lazy.h"
#include "Number.h"
#include "View.h"

#include "zorse/Dialect/Zorse/ZorseOps.h"

#include <vector>

namespace zorse::onnx_import {

/// One summand factor * (sum over samples of numerator) of a loss.
struct LossSummand {
  Number factor = 1.0;
  mlir::Value numerator;      ///< tensor<?xfloat>
  int64_t elementsPerRow = 0; ///< numbers added into one numerator
};

/// A number that is a reduction over all samples of a step of what follows from inputs alone.
struct Count {
  mlir::Value numerator; ///< tensor<?xfloat>
  ReduceKind reduce = ReduceKind::Sum;
};

/// Uniform numbers that a node draws, on their way to a mask (DrawnMasks.cpp).
struct Drawn {
  int64_t instance = 0;
  double low = 0, high = 1;
  double kept = -1; ///< the probability of `true`, once they have been compared
};

struct Val {
  enum class Kind : uint8_t { Absent, Constant, Known, Graph, Sequence, Loss, Drawn };
  Kind kind = Kind::Absent;
  ElementKind type = ElementKind::Undefined;
  View view;
  LazyPtr lazy;                      ///< Constant
  std::vector<Number> numbers;       ///< Known: the elements that the view is of
  int64_t sampleStep = 0;            ///< Constant, integers: this times the number of the sample is added; axes of samples have stride 0
  mlir::Value value;                 ///< Graph
  Number scale = 1.0;                ///< Graph, floats: a factor not yet applied
  bool hides = false;                ///< may hold a row (last axis) in which every entry is masked
  bool countsSamples = false;        ///< Graph: ids for a GatherND whose first component is the number of the sample, written as 0
  std::vector<Val> elements;         ///< Sequence; Loss with a shape: summands, whose dimension 0 is that of the samples
  std::vector<LossSummand> summands; ///< Loss
  Drawn drawn;                       ///< Drawn

  bool isConstant() const { return kind == Kind::Constant; }
  bool isKnown() const { return kind == Kind::Known; }
  bool isGraph() const { return kind == Kind::Graph; }
  std::vector<int64_t> shape() const { return view.shape(); }
  int64_t rank() const { return view.rank(); }
  explicit operator bool() const { return kind != Kind::Absent; }
};

} // namespace zorse::onnx_import
