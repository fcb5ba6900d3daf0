// A value of the file's graph during interpretation.
#pragma once

#include "Lazy.h"
#include "Number.h"
#include "View.h"

#include "zorse/Dialect/Zorse/ZorseOps.h"

#include <utility>
#include <variant>
#include <vector>

namespace zorse::onnx_import {

struct ImportedValue;

/// Numbers that can be read during import.
struct Constant {
  LazyPtr lazy;
  int64_t sampleStep = 0; ///< integers only: this times the sample number is added to each element;
                          ///< sample axes have stride 0
};

/// Numbers known before the step.
struct Known {
  std::vector<Number> numbers; ///< the elements that the view refers to
};

/// A tensor of the IR.
struct Tensor {
  mlir::Value value;
  Number scale = 1.0; ///< floats only: a factor not yet applied
};

/// A list of values, each with its own shape.
struct Sequence {
  std::vector<ImportedValue> elements;
};

/// One summand factor * (sum over samples of numerator) of a loss.
struct LossSummand {
  Number factor = 1.0;
  mlir::Value numerator;      ///< tensor<?xfloat>
  int64_t elementsPerRow = 0; ///< number of elements added into one numerator
};

/// A scalar that is a sum over all samples of a step.
struct Loss {
  std::vector<LossSummand> summands;
};

/// Sums over samples, with a shape.
struct Sums {
  std::vector<ImportedValue> summands; ///< dimension 0 of each tensor, the samples, is summed over;
                                       ///< the others are those of the view
};

/// Uniform random numbers drawn by a node, which become a mask (DrawnMasks.cpp).
struct Drawn {
  int64_t rngId = 0;
  double low = 0, high = 1;
  double kept = -1; ///< probability of `true` after the comparison; -1 before
};

/// Exactly one of the above, or absent: an omitted operand, or the result of an operator that
/// failed. Reading a value as another kind ends the program.
struct ImportedValue {
  ElementKind type = ElementKind::Undefined;
  View view; ///< view of a value with a shape; otherwise that of a scalar
  std::variant<std::monostate, Constant, Known, Tensor, Sequence, Loss, Sums, Drawn> content;
  bool hides = false;   ///< may contain a row (last axis) in which every entry is masked
  bool grouped = false; ///< dimension 0 of the view is the row, in front of the file's dimensions
                        ///< (GroupedOps.cpp)
  bool affine = false;  ///< with `grouped`: a sum over samples, plus what no sample changes
  bool countsSamples = false; ///< ids for a GatherND with the sample number as first component,
                              ///< written as 0

  explicit operator bool() const { return !is<std::monostate>(); }
  bool isConstant() const { return is<Constant>(); }
  bool isKnown() const { return is<Known>(); }
  bool isTensor() const { return is<Tensor>(); }
  bool isArray() const { return isConstant() || isTensor(); }
  bool isSequence() const { return is<Sequence>(); }
  bool isSums() const { return is<Sums>(); }
  bool isLoss() const { return is<Loss>() || isSums(); } ///< with or without a shape
  bool isDrawn() const { return is<Drawn>(); }

  std::vector<int64_t> shape() const { return view.shape(); }
  int64_t rank() const { return view.rank(); }

  Constant &constant() { return std::get<Constant>(content); }
  Tensor &tensor() { return std::get<Tensor>(content); }
  Loss &loss() { return std::get<Loss>(content); }
  const Loss &loss() const { return std::get<Loss>(content); }
  const LazyPtr &lazy() const { return std::get<Constant>(content).lazy; }
  mlir::Value value() const { return std::get<Tensor>(content).value; }
  std::vector<Number> &numbers() { return std::get<Known>(content).numbers; }
  const std::vector<Number> &numbers() const { return std::get<Known>(content).numbers; }
  Drawn &drawn() { return std::get<Drawn>(content); }
  const std::vector<ImportedValue> &elements() const {
    return std::get<Sequence>(content).elements;
  }
  const std::vector<ImportedValue> &sums() const { return std::get<Sums>(content).summands; }

  /// 0 if the value is not a constant.
  int64_t sampleStep() const { return isConstant() ? std::get<Constant>(content).sampleStep : 0; }
  /// 1 if the value is not a tensor.
  Number scale() const { return isTensor() ? std::get<Tensor>(content).scale : Number(1.0); }
  /// Returns the scale and sets it to 1.
  Number takeScale() { return isTensor() ? std::exchange(tensor().scale, 1.0) : Number(1.0); }

private:
  template <typename T> bool is() const { return std::holds_alternative<T>(content); }
};

} // namespace zorse::onnx_import
