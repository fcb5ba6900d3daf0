// Canonical form of units, the classes of isomorphic units, and the function of a class.
#pragma once

#include "ModelGraph.h"

#include "mlir/IR/Builders.h"

#include <string>

namespace zorse::units {

/// One unit in canonical form. Equal keys mean isomorphic units with arguments that correspond
/// position by position.
struct Outline {
  std::vector<mlir::Operation *> ops; ///< ops of `@model`: spine and cloned side operations,
                                      ///< operands first
  std::vector<mlir::BlockArgument> parameters; ///< by argument index; a parameter that is read
                                               ///< twice is one argument
  std::vector<mlir::BlockArgument> inputs;
  std::vector<mlir::Value> valuesIn;
  std::vector<mlir::Value> valuesOut;
  std::vector<Numerator> losses;
  unsigned randomOps = 0; ///< number of random ops, numbered from 0 in the order of `ops`
  std::string key;
};

/// Returns the unit `order[begin, end)`. Commutative operands are sorted by structure. Names,
/// locations, `rng_id` and discardable attributes are ignored; the need for a gradient is not.
Outline outlineUnit(const ModelGraph &graph, int begin, int end);

/// Builds `@<name>.forward` for this outline, with arguments and `zorse.gradient`.
mlir::func::FuncOp buildForward(mlir::OpBuilder &builder, const ModelGraph &graph,
                                const Outline &outline);

/// Returns "embedding", "attention", "mlp", "block", "head" or "layer"; used only for names.
llvm::StringRef kindOf(const Outline &outline, bool first);

bool drawsRandomNumbers(mlir::Operation *op);

} // namespace zorse::units
