// Operations of the `zorse` dialect.
#pragma once

#include "zorse/Dialect/Zorse/Interfaces.h"
#include "zorse/Dialect/Zorse/ZorseAttributes.h"

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/RegionKindInterface.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/InferTypeOpInterface.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include <optional>

namespace zorse {

/// The attributes of zorse.attention as one value.
struct AttentionOptions {
  double scale = 1.0;
  bool causal = false;
  std::optional<int64_t> window; ///< only with causal
  std::optional<double> softcap;
  double dropout = 0.0;
  int64_t rngId = 0; ///< number of the dropout in the model, part of the key of its random numbers;
                     ///< used if dropout > 0
  int64_t firstHead = 0; ///< number of the first query head in the undivided op, for dropout
};

/// Trait of activation functions: elementwise operations that are computed in the type of their
/// operand.
template <typename ConcreteOp>
class IsActivation : public mlir::OpTrait::TraitBase<ConcreteOp, IsActivation> {};

} // namespace zorse

#define GET_OP_CLASSES
#include "zorse/Dialect/Zorse/ZorseOps.h.inc"

namespace zorse {

/// Whether the op can return statistics for its backward (layer_norm, rms_norm, attention,
/// cross_entropy).
bool hasOptionalStatistics(mlir::Operation *op);

/// Returns `op` with its statistics as results. This is `op` itself if it returns them already or
/// has none; otherwise a new op before it, which replaces it.
mlir::Operation *withStatistics(mlir::OpBuilder &builder, mlir::Operation *op);

/// Creates a splat constant. If `type` carries samples or is large, creates a scalar constant and a
/// broadcast.
mlir::Value createSplat(mlir::OpBuilder &builder, mlir::Location loc, mlir::RankedTensorType type,
                        double value);

/// Returns the value of a splat of integers or floats, also behind broadcasts and reshapes; nullopt
/// for other values.
std::optional<double> splatValue(mlir::Value value);

/// Whether the op is a reshape, transpose, slice or broadcast: its result contains elements of one
/// operand, reordered, repeated or selected. Returns false for null.
bool isView(mlir::Operation *op);
/// Whether the op is a view, concat or detach: every element of the result is an element of an
/// operand.
bool movesElements(mlir::Operation *op);

/// Returns the task of a function of a class; nullopt if it belongs to no class.
std::optional<Task> taskOf(mlir::func::FuncOp function);

/// Returns the name of a compiled function: "mlp.forward", "update.decay".
std::string compiledFunctionName(mlir::func::FuncOp function);

/// Returns the functions of a module and its classes in the order of their compiled functions:
/// forwards and backwards, functions without a class, logits, and last the functions that only some
/// plans call. The last ones can be omitted without moving other compiled functions.
llvm::SmallVector<mlir::func::FuncOp> functionsInOrder(mlir::ModuleOp module);

/// Attaches the cost and factors interfaces to upstream arith and math operations.
void registerCostAndFactorsModels(mlir::DialectRegistry &registry);

} // namespace zorse
