// Propagates the division of one factor through a joint function.
#pragma once

#include "zorse/Sharding/Sharding.h"

#include <vector>

namespace zorse::sharding {

/// Finds all values and ops that could be divided along with a factor of one op. Divisions pass an
/// op in all directions: from operands to results and from results to operands. They end where an
/// op combines the factor or where it needs all points.
class Propagation {
public:
  /// \param taken  ops that are divided along another axis
  Propagation(int64_t granules, const llvm::DenseMap<mlir::Operation *, DividedOp> &taken)
      : granules(granules), taken(taken) {}

  /// Divides a factor into equal granules and propagates it. The number of granules divides the
  /// factor's size.
  void run(mlir::Operation *op, unsigned factor);

  const int64_t granules;
  llvm::MapVector<mlir::Operation *, OpSplit> splits; ///< ops that can be divided; all maps cover
                                                      ///< the factors
  llvm::DenseMap<mlir::Value, ShardedDim> maps;       ///< how values would be divided
  llvm::DenseMap<mlir::Operation *, std::string> refused; ///< ops that a division reached and that
                                                          ///< cannot be divided
  int64_t coarser = 0; ///< a smaller number of granules with which more ops could be divided; 0:
                       ///< none

  /// The factors of an op, computed once.
  const OpFactors &factorsOf(mlir::Operation *op);

private:
  void update(mlir::Operation *op);
  void refuse(mlir::Operation *op, std::string reason);
  std::string addOperandsAndResults(mlir::Operation *op, const OpFactors &rule, OpSplit &split);
  std::string projectAll(mlir::Operation *op, const OpFactors &rule, const OpSplit &split);
  void enqueue(mlir::Value value);
  void dropIncomplete();

  const llvm::DenseMap<mlir::Operation *, DividedOp> &taken;
  llvm::DenseMap<mlir::Operation *, std::unique_ptr<OpFactors>> rules;
  llvm::SetVector<mlir::Operation *> work;
};

} // namespace zorse::sharding
