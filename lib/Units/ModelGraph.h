// What the unit finder knows of `@model`.
#pragma once

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"

#include <string>
#include <vector>

namespace zorse::units {

/// A numerator the model returns.
struct Numerator {
  int64_t term;
  unsigned result;
  mlir::Value value;
};

/// `@model`, classified. The *spine* is what depends on samples and on a parameter: only spine values cross cuts. Everything else follows from inputs
/// alone (masks, positions, shifted labels) or from parameters alone, and is cloned into its users.
struct ModelGraph {
  mlir::func::FuncOp model;
  std::vector<Numerator> numerators;               ///< by term
  std::vector<std::string> known;                  ///< expressions of zorse.known, each once: ModelSummary.known
  bool numbersSamples = false;                     ///< a term or a count reads zorse.sample_number
  std::vector<mlir::Operation *> order;            ///< spine operations, every one right before its first reader where possible
  llvm::DenseMap<mlir::Operation *, int> position; ///< in `order`
  llvm::DenseSet<mlir::Value> active;              ///< values with a gradient: from a trained parameter to a numerator

  /// Values that cross cuts in half precision, which they have been rounded to: one unit alone reads each, so that its gradient is complete there.
  /// And trained parameters that are read as copies in half precision. Filled when the cuts are known; empty where units compute in f64.
  llvm::DenseMap<mlir::Value, mlir::Type> narrow;

  bool onSpine(mlir::Operation *op) const { return position.count(op); }
  bool onSpine(mlir::Value value) const { return value.getDefiningOp() && onSpine(value.getDefiningOp()); }
  bool isParameter(mlir::BlockArgument argument) const;
  /// Trained: marked trainable, and the loss depends on it.
  bool isTrained(mlir::BlockArgument argument) const;
  llvm::StringRef nameOf(mlir::BlockArgument argument) const;
};

/// Fills `narrow` for units that end at these positions of the order.
void findNarrowValues(ModelGraph &graph, llvm::ArrayRef<int> ends);

/// Fails, with diagnostics, if the model has no numerator or nothing to train.
mlir::FailureOr<ModelGraph> analyseModel(mlir::func::FuncOp model);

/// A matrix product or an attention.
bool isHeavy(mlir::Operation *op);
bool isNorm(mlir::Operation *op);

/// The first name in a location (ONNX node), or "".
llvm::StringRef nameOf(mlir::Location loc);

} // namespace zorse::units
