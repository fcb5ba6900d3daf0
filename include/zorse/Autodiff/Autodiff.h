// Reverse-mode differentiation of one straight-line unit function, for a chosen set of saved
// values.
//
// Errors are diagnostics at the operation that cannot be differentiated. Functions return failure
// after emitting them.
#pragma once

#include "zorse/Dialect/Zorse/ZorseAttributes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Value.h"
#include "mlir/Support/LLVM.h"

#include <memory>

namespace mlir {
class DialectRegistry;
class OpBuilder;
class Pass;
} // namespace mlir

namespace zorse::autodiff {

/// Selects the values that a forward saves for its backward (the set S). The backward recomputes
/// all other forward values that it needs from S, parameters, graph inputs and boundary inputs, by
/// cloning the slice that computes them.
enum class RecomputePolicy {
  MinCut, ///< fewest bytes per row without recomputing a matmul, attention, loss or statistic.
  None,   ///< all values that the gradients read.
  Full,   ///< nothing: the complete forward is recomputed.
};

/// Argument attribute (unit): the backward returns this argument's gradient. Set on `parameter` and
/// `boundary_in` arguments.
inline constexpr llvm::StringLiteral kGradientAttr = "zorse.gradient";
/// Argument and result attribute (a type). On a boundary value: the value has been rounded to that
/// type, and only one unit reads it. On a parameter: the parameter is read as a copy in that type,
/// and the copy's gradient is the parameter's gradient.
inline constexpr llvm::StringLiteral kLowPrecisionAttr = "zorse.low_precision";

/// Registers the differentiation rules of all zorse, arith and math operations that a model may
/// contain.
void registerDifferentiableModels(mlir::DialectRegistry &registry);

/// Whether a gradient can flow through values of this type: floats only.
bool isDifferentiableType(mlir::Type type);

/// Whether a gradient of the owner's results can reach this operand. Returns true for operations
/// without a differentiation rule, so that an error names them.
bool propagatesGradient(mlir::OpOperand &use);

/// Returns the values of a straight-line block on a differentiable path from one of `sources` to
/// one of `targets`.
llvm::DenseSet<mlir::Value> activeValues(mlir::Block &block, llvm::ArrayRef<mlir::Value> sources,
                                         llvm::ArrayRef<mlir::Value> targets);

/// Appends to the builder's block the gradients of `forwardOps` (straight line, in order).
///
/// \param gradients  in: one seed per value with a known gradient; out: gradients of all `active`
/// values on the path, each followed by a `zorse.gradient_of`. Contributions are added in reverse
/// order of the uses, which is a fixed order. A value without an entry has gradient zero.
/// \param active     the values that need a gradient.
mlir::LogicalResult appendBackward(mlir::OpBuilder &builder,
                                   llvm::ArrayRef<mlir::Operation *> forwardOps,
                                   llvm::DenseMap<mlir::Value, mlir::Value> &gradients,
                                   llvm::function_ref<bool(mlir::Value)> active);

/// Differentiation has three steps. Other passes may change the joint function between the first
/// and the second.
///
/// Step 1 turns `@forward` of a class into the joint graph `@joint`: its operations and those of
/// the gradients in one block, with the results of both. The gradient of argument or result i is
/// the result or argument with the same index. Every other value with a gradient has a
/// `zorse.gradient_of`.
///
///     @forward(parameter.., input.., boundary_in..)
///         -> (boundary_out.., loss..)
///     @joint  (parameter.., input.., boundary_in.., boundary_out_gradient.., scalars..)
///         -> (boundary_out.., loss.., boundary_in_gradient.., parameter_gradient..)
///
/// Gradients are returned for arguments with `zorse.gradient`, and expected for `boundary_out`
/// results with it. The seed of `loss` k is `scalars` k. If no argument has `zorse.gradient`, there
/// are no gradients. An operation belongs to the forward iff a result of the forward depends on it.
mlir::FailureOr<mlir::func::FuncOp> joinBackward(mlir::func::FuncOp forward);
/// Replaces every `zorse.gradient_of` by the gradient.
void dropPairs(mlir::func::FuncOp joint);

/// Runs between steps 1 and 2 for models with roundings that compute in f32. Stores every value
/// that is the result of a rounding, or a view of one, in two bytes. Products and attention read
/// and write such values directly; other operations widen them first. Boundary values with
/// `zorse.low_precision` on the argument or result, and their gradients, are also passed in two
/// bytes. No number changes: roundings become conversions.
void useLowPrecisionStorage(mlir::func::FuncOp joint);

/// Step 2 chooses the values that the forward saves for the backward, and appends them to the
/// results of the joint function in argument attributes `saved`.
void chooseSaved(mlir::func::FuncOp joint, RecomputePolicy policy);

struct DifferentiatedFunctions {
  mlir::func::FuncOp forward;  ///< the input function with additional `saved` results; statistics
                               ///< that the backward reads are enabled.
  mlir::func::FuncOp backward; ///< null if no gradient is requested and no gradient is received.
};

/// Step 3 slices the joint function, which becomes the forward, into `@forward` and `@backward`.
/// The backward is inserted after the forward.
///
///     @forward (parameter.., input.., boundary_in..)
///         -> (boundary_out.., loss.., saved..)
///     @backward(parameter.., input.., boundary_in.., boundary_out_gradient.., scalars.., saved..)
///         -> (boundary_in_gradient.., parameter_gradient..)
///
/// Arguments that the backward does not read are removed; argument attribute indices identify the
/// remaining ones. The backward recomputes forward values that it reads and that are not saved.
DifferentiatedFunctions sliceJoint(mlir::func::FuncOp joint);

/// Runs the three steps.
mlir::FailureOr<DifferentiatedFunctions> differentiate(mlir::func::FuncOp forward,
                                                       RecomputePolicy policy);

/// Whether a result of a joint function belongs to the forward; whether it is a gradient that other
/// units wait for; whether it is a gradient that only the reduction waits for.
inline bool isForwardKind(ArgumentKind kind) {
  return kind == ArgumentKind::BoundaryOut || kind == ArgumentKind::Loss;
}
inline bool isGradientKind(ArgumentKind kind) {
  return kind == ArgumentKind::BoundaryInGradient || kind == ArgumentKind::ParameterGradient;
}

/// A backward in two parts, for plans that split it. Functions are null if the backward has results
/// of one kind only.
struct SplitBackward {
  mlir::func::FuncOp inputs, weights;
};

/// Copies `@backward` into two parts, inserted after it. The backward is unchanged.
///
///     @backward_inputs (as @backward)             -> (boundary_in_gradient.., deferred..)
///     @backward_weights(as @backward, deferred..) -> (parameter_gradient..)
///
/// `deferred` are the values that the first part computes and the second needs. They are chosen
/// like `saved`: fewest bytes per row without recomputing a matmul, attention, loss or statistic.
/// The two parts compute the same as the backward; some elementwise operations run in both.
SplitBackward splitBackward(mlir::func::FuncOp backward);

/// Copies the part of `@forward` that computes its `saved` results, and inserts it after the
/// forward. Returns null if nothing is saved. Plans with activation recomputation call it for a
/// cell's last unit.
///
///     @recompute(parameter.., input.., boundary_in..) -> (saved..)
mlir::func::FuncOp sliceSaved(mlir::func::FuncOp forward);

/// Bytes of one row of a tensor with a batch dimension, or of a whole tensor without one. Booleans
/// have one byte.
int64_t bytesPerRow(mlir::Type tensorType);
/// `bytesPerRow` rounded up to a multiple of 64: size per row of a saved value in the packed
/// argument.
int64_t savedBytesPerRow(mlir::Type tensorType);

/// The steps as passes over all classes of a module. The last one also builds the parts of
/// backwards and recomputations that programs call.
std::unique_ptr<mlir::Pass> createJoinBackward();
std::unique_ptr<mlir::Pass> createLowPrecisionStorage();
std::unique_ptr<mlir::Pass> createChooseSaved(RecomputePolicy policy);
std::unique_ptr<mlir::Pass> createSliceJoint();

/// Registers `zorse-differentiate` and its steps `zorse-join-backward`,
/// `zorse-low-precision-storage`, `zorse-choose-saved`, `zorse-slice-joint`.
void registerPasses();

} // namespace zorse::autodiff
