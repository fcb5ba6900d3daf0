// Units as functions: their canonical form, the classes of equal ones, and the function of a class.
#pragma once

#include "ModelGraph.h"

#include "mlir/IR/Builders.h"

#include <string>

namespace zorse::units {

/// One unit in canonical form. Equal keys mean isomorphic units whose arguments correspond position by position.
struct Outline {
  std::vector<mlir::Operation *> ops;          ///< of `@model`, spine and cloned side operations, operands first
  std::vector<mlir::BlockArgument> parameters; ///< by slot index; a parameter read twice is one argument
  std::vector<mlir::BlockArgument> inputs;
  std::vector<mlir::Value> valuesIn;
  std::vector<mlir::Value> valuesOut;
  std::vector<Numerator> losses;
  unsigned instances = 0; ///< random instances, numbered from 0 in the order of `ops`
  std::string key;
};

/// The unit made of `order[begin, end)`. Commutative operands are sorted by structure; names, locations, random instances and discardable attributes
/// do not count; whether a gradient is wanted does.
Outline outlineUnit(const ModelGraph &graph, int begin, int end);

/// `@<name>.forward` for this outline, with slots and `zorse.gradient`.
mlir::func::FuncOp buildForward(mlir::OpBuilder &builder, const ModelGraph &graph, const Outline &outline);

/// "embedding", "attention", "mlp", "block", "head" or "layer": for names only.
llvm::StringRef kindOf(const Outline &outline, bool first);

bool drawsRandomNumbers(mlir::Operation *op);

} // namespace zorse::units
