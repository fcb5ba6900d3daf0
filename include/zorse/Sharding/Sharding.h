// Tensor parallelism: how the functions of a unit class are divided among the devices of a group.
//
// The division is derived from the dimension factors of the operations (FactorsOpInterface). It
// knows no layer, no model and no name. An axis is a set of granules, such as attention heads or
// columns, of which every device of the group has a range. Along an axis, a value is
// - sharded: each device has its granules of one dimension;
// - partial: each device has a summand of the same shape;
// - whole: each device has all of it.
// Whole values become sharded ones without communication. A partial value becomes whole by an
// all-reduce, a sharded one by an all-gather.
#pragma once

#include "zorse/Sharding/GranuleMap.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/OwningOpRef.h"
#include "mlir/IR/Value.h"
#include "mlir/Pass/Pass.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/MapVector.h"

#include <memory>
#include <string>
#include <vector>

namespace zorse::sharding {

struct Axis {
  std::string name; ///< "heads", "columns", with a number if there are several
  int64_t granules = 0;
};

struct ShardedValue {
  unsigned axis = 0;
  ShardedDim dim;
};

struct DividedOp {
  unsigned axis = 0;
  OpSplit split;
};

/// An op that computes whole results on every device, and why.
struct UndividedOp {
  mlir::Operation *op;
  std::string reason;
};

/// The division of a joint function. Values and ops that are not listed are whole.
struct ClassSharding {
  std::vector<Axis> axes;
  llvm::DenseMap<mlir::Operation *, DividedOp> ops;
  llvm::DenseMap<mlir::Value, ShardedValue> values;
  llvm::DenseSet<mlir::Value> partial;
  llvm::SetVector<mlir::Value> reduced;  ///< partial values that are also needed whole: an
                                         ///< all-reduce each
  llvm::SetVector<mlir::Value> gathered; ///< sharded values that are also needed whole: an
                                         ///< all-gather each
  unsigned combined = 0;                 ///< losses whose parts exchange three numbers per label
  double dividedFlops = 0, flops = 0;    ///< of one row of the joint function
  std::vector<UndividedOp> undivided;    ///< those with FLOPs, most FLOPs first
};

/// FLOPs that a device computes in the time of one exchanged byte. It is far below the ratio of
/// real machines (hundreds), because the planner decides whether a group of devices pays. It only
/// prevents exchanges for the sake of elementwise ops.
inline constexpr double kFlopsPerByte = 8;

/// Attribute of a parameter (unit): it is stored whole, because several units read it.
inline constexpr llvm::StringLiteral kWholeAttr = "zorse.whole";

/// Derives the division of a joint function (zorse/Autodiff/Autodiff.h). Every parameter that it
/// shards has a gradient with the same division, or one that every device computes whole; boundary
/// values and losses are whole.
ClassSharding deriveSharding(mlir::func::FuncOp joint, double flopsPerByte = kFlopsPerByte);

/// Returns the parameter whose gradient is a result of the function; null for other results.
mlir::BlockArgument parameterOfGradient(mlir::func::FuncOp joint, unsigned result);

/// Builds the function of one device: with local types, and with zorse.all_reduce and
/// zorse.all_gather where devices communicate. All devices have the same exchanges in the same
/// order.
///
/// \param shares  for each axis, the ranges of all devices, in their order. They tile the granules.
/// \param device  position in these lists
mlir::OwningOpRef<mlir::func::FuncOp> instantiate(mlir::func::FuncOp joint,
                                                  const ClassSharding &sharding,
                                                  llvm::ArrayRef<std::vector<Share>> shares,
                                                  size_t device);

/// Returns the type of a device's part of a value.
mlir::RankedTensorType localType(mlir::Value value, const ClassSharding &sharding,
                                 llvm::ArrayRef<Share> shares);

/// Formats the division: one line per axis and sharded parameter, the exchanges, and the divided
/// fraction of the FLOPs.
std::string toString(const ClassSharding &sharding, mlir::func::FuncOp joint);

/// Prints the division of every class as a remark: `zorse-derive-sharding`, after
/// `zorse-join-backward`.
std::unique_ptr<mlir::Pass> createDeriveSharding();
void registerPasses();

} // namespace zorse::sharding
