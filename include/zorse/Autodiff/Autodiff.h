// Reverse mode over one straight-line unit function, for a chosen set of saved values.
//
// Errors are diagnostics at the operation that cannot be differentiated; functions return failure after emitting them.
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

/// Which values a forward keeps for its backward (the set S). What a backward needs beyond S, parameters, graph inputs and boundary inputs it
/// recomputes by cloning the slice that makes it.
enum class SavePolicy {
  MinimumCut, ///< fewest bytes per row such that no matmul, attention, loss or statistic is computed twice.
  Keep,       ///< everything the gradients read.
  Full,       ///< nothing: the whole forward is computed again.
};

/// Argument attribute (unit): the backward returns this argument's gradient. Kept on `parameter` and `boundary_in` arguments.
inline constexpr llvm::StringLiteral kGradientAttr = "zorse.gradient";
/// Argument and result attribute (a type): this boundary value is the result of a rounding to that type, and one unit alone reads
/// it; or this parameter is read as a copy in that type, whose gradient is the parameter's.
inline constexpr llvm::StringLiteral kNarrowAttr = "zorse.narrow";

/// Attaches the differentiation of every zorse, arith and math operation that a model may contain.
void registerDifferentiableModels(mlir::DialectRegistry &registry);

/// True iff a gradient can flow through values of this type: floats only.
bool isDifferentiableType(mlir::Type type);

/// True iff a gradient of the owner's results can reach this operand. Operations without a differentiation count as if it could, so that the error
/// names them.
bool propagatesGradient(mlir::OpOperand &use);

/// The values of a straight-line block that lie on a differentiable way from one of `sources` to one of `targets`.
llvm::DenseSet<mlir::Value> activeValues(mlir::Block &block, llvm::ArrayRef<mlir::Value> sources, llvm::ArrayRef<mlir::Value> targets);

/// Appends to the builder's block the gradients of `forwardOps` (straight line, in order).
///
/// \param gradients  in: one seed per value whose gradient is known; out: gradients of everything `active` on the way, each behind a
/// `zorse.gradient_of`.
///                   Contributions are added in reverse order of the uses, a fixed order; a value without an entry has gradient zero.
/// \param active     tells which values need a gradient.
mlir::LogicalResult appendBackward(mlir::OpBuilder &builder, llvm::ArrayRef<mlir::Operation *> forwardOps,
                                   llvm::DenseMap<mlir::Value, mlir::Value> &gradients, llvm::function_ref<bool(mlir::Value)> active);

/// Differentiation takes three steps, and between the first and the second other passes may change the joint function.
///
/// Step 1 turns `@forward` of a class into `@joint`: its operations and then those of the gradients, in one block, with the results of both. The
/// gradient of argument or result i is the result or argument of the same index; a `zorse.gradient_of` stands beside every other value that has a
/// gradient.
///
///     @forward(parameter.., input.., boundary_in..)                                     -> (boundary_out.., loss..)
///     @joint  (parameter.., input.., boundary_in.., boundary_out_gradient.., scalars..) -> (boundary_out.., loss.., boundary_in_gradient..,
///     parameter_gradient..)
///
/// Gradients are returned for the arguments that carry `zorse.gradient`, expected for the `boundary_out` results that carry it; every `loss` k is
/// seeded by `scalars` k. Without any of the first there are no gradients at all. An operation is the forward's iff a result of the forward depends
/// on it.
mlir::FailureOr<mlir::func::FuncOp> joinBackward(mlir::func::FuncOp forward);

/// Between steps 1 and 2, for models with roundings that are computed in f32: stores every value that is the result of a rounding, or a view of one,
/// in two bytes. Products and attention read and write such values as they are; what else computes with them widens them first. Boundary values whose
/// argument or result carries `zorse.narrow`, and their gradients, cross in two bytes. No number changes: roundings become conversions.
void narrowStorage(mlir::func::FuncOp joint);

/// Step 2 chooses what the forward keeps for the backward, and appends it to the results of the joint function in slots `saved`.
void chooseSaved(mlir::func::FuncOp joint, SavePolicy policy);

struct Differentiated {
  mlir::func::FuncOp forward;  ///< as given, plus `saved` results; statistics the backward reads are requested.
  mlir::func::FuncOp backward; ///< null when no gradient is asked for and no gradient arrives.
};

/// Step 3 slices the joint function, which becomes the forward, into `@forward` and `@backward`, inserted after it.
///
///     @forward (parameter.., input.., boundary_in..)                                              -> (boundary_out.., loss.., saved..)
///     @backward(parameter.., input.., boundary_in.., boundary_out_gradient.., scalars.., saved..) -> (boundary_in_gradient..,
///     parameter_gradient..)
///
/// Arguments the backward does not read are absent: the indices of slots say which are left. What it reads of the forward and is not saved it
/// computes again.
Differentiated sliceJoint(mlir::func::FuncOp joint);

/// The three steps.
mlir::FailureOr<Differentiated> differentiate(mlir::func::FuncOp forward, SavePolicy policy);

/// Whether a result of a joint function is the forward's, or a gradient: one that other units wait for, or one that only the reduction waits for.
inline bool isForwardSlot(SlotKind kind) { return kind == SlotKind::BoundaryOut || kind == SlotKind::Loss; }
inline bool isGradientSlot(SlotKind kind) { return kind == SlotKind::BoundaryInGradient || kind == SlotKind::ParameterGradient; }

/// A backward in two parts, for plans that split it; null functions where it has results of one sort only.
struct SplitBackward {
  mlir::func::FuncOp inputs, weights;
};

/// Copies `@backward` into two parts, inserted after it; the backward itself stays as it is.
///
///     @backward_inputs (as @backward)             -> (boundary_in_gradient.., deferred..)
///     @backward_weights(as @backward, deferred..)  -> (parameter_gradient..)
///
/// `deferred` are the values that the first part makes and the second needs, chosen like `saved`: fewest bytes per row such that no matmul,
/// attention, loss or statistic is computed twice. Together the parts compute what the whole does, some elementwise operations twice.
SplitBackward splitBackward(mlir::func::FuncOp backward);

/// Copies `@forward` less what only its other results need, inserted after it; null where nothing is saved. Plans that recompute call it for
/// a cell's last unit.
///
///     @recompute(parameter.., input.., boundary_in..) -> (saved..)
mlir::func::FuncOp sliceSaved(mlir::func::FuncOp forward);

/// Bytes of one row of a sampled tensor, of the whole tensor for an unsampled one. Booleans are one byte.
int64_t bytesPerRow(mlir::Type tensorType);
/// `bytesPerRow` rounded up to 64: what a saved value occupies per row in the packed slot.
int64_t savedBytesPerRow(mlir::Type tensorType);

/// The steps as passes over all classes of a module; the last also builds the parts of backwards and recomputations, all that programs call.
std::unique_ptr<mlir::Pass> createJoinBackward();
std::unique_ptr<mlir::Pass> createNarrowStorage();
std::unique_ptr<mlir::Pass> createChooseSaved(SavePolicy policy);
std::unique_ptr<mlir::Pass> createSliceJoint();

/// Registers `zorse-differentiate` and its steps `zorse-join-backward`, `zorse-narrow-storage`, `zorse-choose-saved`, `zorse-slice-joint`.
void registerPasses();

} // namespace zorse::autodiff
