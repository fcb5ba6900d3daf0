// Tensor parallelism in the summary: units of the devices of groups, and their parts of parameters.
#pragma once

#include "zorse/Dialect/Zorse/ZorseOps.h"

#include "bundle.pb.h"

#include <vector>

namespace zorse::units {

/// Describes the exchanges of a function.
void describeExchanges(mlir::func::FuncOp function, bundle::UnitFunction &described);

/// Adds the groups of `units` (zorse-divide-units) to a summary that describes the units. Replaces
/// the parameters of the divided units by the parts that devices have. Fails after a diagnostic if
/// the exchanges of two devices differ.
/// \param classId  by name of the class
/// \param copies   per parameter, the type in which it is read; changed as the parameters are
mlir::LogicalResult describeGroups(llvm::ArrayRef<UnitOp> units,
                                   llvm::function_ref<uint32_t(llvm::StringRef)> classId,
                                   bundle::ModelSummary &summary,
                                   std::vector<bundle::ElementType> &copies);

} // namespace zorse::units
