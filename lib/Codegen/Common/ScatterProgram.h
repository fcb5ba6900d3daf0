// The memory accesses of a scatter_add, independent of the assignment of table rows to threads.
#pragma once

#include "RowProgram.h"

namespace zorse::codegen {

struct ScatterProgram {
  /// Adds the operands and the cost to `k`, which must outlive this object.
  ScatterProgram(KernelBuilder &k, const KernelContext &context, int index);

  ScatterAddOp op;
  KernelBuilder &k;
  mlir::Type element, updateElement, indexType; ///< type of table elements; of updates in memory
                                                ///< (narrower if a view widens); of indices
  unsigned indexOperand = 0, updateOperand = 0, out = 0;
  bool accumulates = false;                    ///< whether the run requests accumulation
  llvm::SmallVector<Size> leadSizes;           ///< sizes of the indices' dimensions
  llvm::SmallVector<Size> tailSizes;           ///< sizes of the dimensions of a table row, which is
                                               ///< contiguous
  llvm::SmallVector<int64_t, 4> indexStrides;  ///< over the dimensions of indices
  llvm::SmallVector<int64_t, 4> updateStrides; ///< over the dimensions of indices, then of the row
  int64_t tableRows = 0, width = 0;            ///< rows of the table, and elements per row
  Size tokens;                                 ///< number of indices

  /// updates[from], in elements.
  mlir::Value update(mlir::Value from);
  /// table[at]
  mlir::Value get(mlir::Value at);
  /// table[at] = value
  void put(mlir::Value value, mlir::Value at);
  void clear(mlir::Value at);
  /// Returns the table element plus an update, rounded to the table's element type.
  mlir::Value sum(mlir::Value value, mlir::Value update);
};

} // namespace zorse::codegen
