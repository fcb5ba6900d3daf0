// What a scatter_add reads and writes, before anybody says who has which rows of the table.
#pragma once

#include "RowProgram.h"

namespace zorse::codegen {

struct ScatterProgram {
  /// Adds the operands and the cost to `k`, which outlives this.
  ScatterProgram(KernelBuilder &k, const KernelContext &context, int index);

  ScatterAddOp op;
  KernelBuilder &k;
  mlir::Type element, updateElement, idType; ///< of the table; of updates in memory, narrower where a view widens; of ids
  unsigned idOperand = 0, updateOperand = 0, out = 0;
  bool accumulates = false;                    ///< where the run asks for it
  llvm::SmallVector<Size> leadSizes;           ///< of ids
  llvm::SmallVector<Size> tailSizes;           ///< of a row of the table, which is contiguous
  llvm::SmallVector<int64_t, 4> idStrides;     ///< over the sizes of ids
  llvm::SmallVector<int64_t, 4> updateStrides; ///< over those, then over the row's
  int64_t tableRows = 0, width = 0;            ///< rows of the table and elements of each
  Size tokens;                                 ///< number of ids

  /// updates[from], in elements.
  mlir::Value update(mlir::Value from);
  /// table[at]
  mlir::Value get(mlir::Value at);
  /// table[at] = value
  void put(mlir::Value value, mlir::Value at);
  void clear(mlir::Value at);
  /// What the table would have after an update, rounded to its element type.
  mlir::Value sum(mlir::Value value, mlir::Value update);
};

} // namespace zorse::codegen
