// The formulas of the optimizers, as graphs of elementwise operations and, for Muon, matmuls.
#pragma once

#include "zorse/Dialect/Zorse/TensorBuilder.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include "bundle.pb.h"

#include <vector>

namespace zorse::units {

/// One update of a shard. Arrays are tensors of rank 1, or [blocks, ...] if the rule has blocks.
/// Scalars are tensors of rank 0 in f64.
struct ShardUpdate {
  mlir::Value parameter, gradient; ///< of one type; the gradient is clipped
  std::vector<mlir::Value> states; ///< in the order of UpdateRule.states
  mlir::Value learningRate, step;  ///< step: applied updates, including this one
  double weightDecay = 0;
};

struct UpdatedShard {
  mlir::Value parameter;
  std::vector<mlir::Value> states;
};

/// Scalars and constants of an update. Scalars are computed in f64, and cast where elements use
/// them.
class UpdateScalars {
public:
  UpdateScalars(TensorBuilder &t, mlir::Value like) : t(t), like(like) {}

  mlir::Value number(double value);
  /// Repeats a scalar for every element.
  mlir::Value use(mlir::Value scalar);
  /// Returns base^exponent for a whole exponent >= 0 and base in [0, 1), which every processor
  /// rounds equally.
  mlir::Value power(double base, mlir::Value exponent);
  /// Returns base^exponent for base >= 1, which every processor rounds equally.
  mlir::Value rootPower(mlir::Value base, double exponent);
  /// Returns a boolean for every element: whether the scalar equals the number.
  mlir::Value equals(mlir::Value scalar, double value);

private:
  TensorBuilder &t;
  mlir::Value like;
};

/// Builds the update of an optimizer.
UpdatedShard buildUpdate(TensorBuilder &t, const bundle::TrainingOptions &training,
                         const ShardUpdate &in);

/// Adds the function of a rule, "update.NAME", at the builder's insertion point.
mlir::func::FuncOp addUpdateFunction(mlir::OpBuilder &builder, mlir::Location loc,
                                     const bundle::ModelSummary &summary,
                                     const bundle::UpdateRule &rule);

} // namespace zorse::units
