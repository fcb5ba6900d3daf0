// Tensor parallelism of units: the classes of the devices of a group.
#pragma once

#include "zorse/Sharding/Sharding.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"

#include <memory>
#include <string>
#include <vector>

namespace zorse::sharding {

/// Devices that divide units.
struct UnitGroup {
  std::string name;
  std::vector<int64_t> units; ///< ascending
  std::vector<double> shares; ///< by device
};

/// Attribute of a `zorse.unit`: a dictionary from names of groups to the classes of their devices,
/// in order.
inline constexpr llvm::StringLiteral kGroupsAttr = "zorse.groups";
/// Attribute of a module: the groups in their order, an array of {name, devices (number)}.
inline constexpr llvm::StringLiteral kGroupOrderAttr = "zorse.group_order";
/// Attribute of a parameter of such a class: the device has granules [first, first + count) of
/// dimension `dim` (GranuleMap), which is the first of its type. Parameters without it are whole.
/// If groups divide the unit at different places, the attribute has `stored`: the smallest range of
/// granules that contains this one and that no group divides further is stored as one tensor.
inline constexpr llvm::StringLiteral kShardAttr = "zorse.shard";
/// Attribute of a whole parameter of such a class (unit): the gradients of all devices are
/// summands. Otherwise only the first device computes the gradient.
inline constexpr llvm::StringLiteral kPartialGradientAttr = "zorse.partial_gradient";

/// Adds classes with the joint functions of the devices of every group. Runs between the first two
/// steps of differentiation (zorse/Autodiff/Autodiff.h). Fails after a diagnostic if a device would
/// have no granule of an axis.
mlir::LogicalResult divideUnits(mlir::ModuleOp module, llvm::ArrayRef<UnitGroup> groups,
                                double flopsPerByte = kFlopsPerByte);

/// `zorse-divide-units=group=BEGIN-END:SHARE/SHARE/... flops-per-byte=N`
std::unique_ptr<mlir::Pass> createDivideUnits(std::vector<UnitGroup> groups = {},
                                              double flopsPerByte = kFlopsPerByte);

} // namespace zorse::sharding
