// The ops of the `zorse` dialect.
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
  int64_t instance = 0; ///< of the random numbers, if dropout > 0
};

} // namespace zorse

#define GET_OP_CLASSES
#include "zorse/Dialect/Zorse/ZorseOps.h.inc"

namespace zorse {

/// True for ops that can return statistics for their backward (layer_norm, rms_norm, attention, cross_entropy).
bool hasOptionalStatistics(mlir::Operation *op);

/// `op` with its statistics as results: `op` itself if it has them (or has none to give), otherwise a new op before it that replaces it.
mlir::Operation *withStatistics(mlir::OpBuilder &builder, mlir::Operation *op);

/// A splat constant of `type`; of a sampled or large type as a scalar constant and a broadcast.
mlir::Value createSplat(mlir::OpBuilder &builder, mlir::Location loc, mlir::RankedTensorType type, double value);

/// The value of a splat of integers or floats, looking through broadcasts and reshapes; none if `value` is not one.
std::optional<double> splatValue(mlir::Value value);

/// True for reshape, transpose, slice and broadcast: the result has elements of one operand, in another order or number. Null is no view.
bool isView(mlir::Operation *op);
/// True for views, concat and detach: every element of the result is one of an operand.
bool movesElements(mlir::Operation *op);

/// What a function of a class does; none: it belongs to no class.
std::optional<Task> taskOf(mlir::func::FuncOp function);

/// What the body of a function is called: "mlp.forward", "update.decay".
std::string bodyName(mlir::func::FuncOp function);

/// The functions of a module and of its classes in the order of their bodies: forwards and backwards, what belongs to no class, logits, and then
/// what only some plans call, so that it can be left out without moving others.
llvm::SmallVector<mlir::func::FuncOp> functionsInOrder(mlir::ModuleOp module);

/// Attaches the cost and factors interfaces to upstream arith and math ops.
void registerCostAndFactorsModels(mlir::DialectRegistry &registry);

} // namespace zorse
