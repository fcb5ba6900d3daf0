// The unit finder's analysis of `@model`.
#pragma once

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"

#include <string>
#include <vector>

namespace zorse::units {

/// A numerator (loss sum) that the model returns.
struct Numerator {
  int64_t term;
  unsigned result;
  mlir::Value value;
};

/// The operations of `@model`, classified. The *spine* depends on samples and on a parameter; only
/// spine values cross cuts. All other values depend on inputs alone (masks, positions, shifted
/// labels) or on parameters alone, and are cloned into their users.
struct ModelGraph {
  mlir::func::FuncOp model;
  std::vector<Numerator> numerators; ///< by term
  std::vector<std::string> known; ///< distinct expressions of zorse.known, see ModelSummary.known
  bool numbersSamples = false;    ///< a term or a count reads zorse.sample_number
  std::vector<mlir::Operation *> order; ///< spine operations, each directly before its first reader
                                        ///< if possible
  llvm::DenseMap<mlir::Operation *, int> position; ///< in `order`
  llvm::DenseSet<mlir::Value> active; ///< values with a gradient: from a trained parameter to a
                                      ///< numerator

  /// Values that cross cuts in half precision, to which they have been rounded, with this type.
  /// Only one unit reads each of them, so its gradient is complete there. Also trained parameters
  /// that are read as half-precision copies. Filled after the cuts are found; empty if units
  /// compute in f64.
  llvm::DenseMap<mlir::Value, mlir::Type> lowPrecision;

  bool onSpine(mlir::Operation *op) const { return position.count(op); }
  bool onSpine(mlir::Value value) const {
    return value.getDefiningOp() && onSpine(value.getDefiningOp());
  }
  bool isParameter(mlir::BlockArgument argument) const;
  /// Whether the argument is marked trainable and the loss depends on it.
  bool isTrained(mlir::BlockArgument argument) const;
  llvm::StringRef nameOf(mlir::BlockArgument argument) const;
};

/// Fills `lowPrecision` for units that end at these positions of the order.
void findLowPrecisionValues(ModelGraph &graph, llvm::ArrayRef<int> ends);

/// Analyzes the model. Fails, with diagnostics, if it has no numerator or nothing to train.
mlir::FailureOr<ModelGraph> analyseModel(mlir::func::FuncOp model);

/// Whether the op is a matrix product or an attention.
bool isComputeIntensive(mlir::Operation *op);
bool isNorm(mlir::Operation *op);

/// Returns the first name in a location (the ONNX node), or "".
llvm::StringRef nameOf(mlir::Location loc);

} // namespace zorse::units
