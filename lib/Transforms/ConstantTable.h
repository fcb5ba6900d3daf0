// Elements of constants, read through views.
#pragma once

#include "Views.h"

#include "mlir/IR/BuiltinAttributes.h"

namespace zorse {

/// The elements of a constant tensor under a view. Reads dense and resource attributes of f32, f64, f16, bf16, i1, i32 and i64.
class ConstantTable {
public:
  /// None if the base of `view` is no constant whose elements can be read.
  static std::optional<ConstantTable> read(const View &view);
  static std::optional<ConstantTable> read(mlir::Value value) { return read(analyzeView(value)); }

  /// Element at these indices of the view's dimensions (sample axis left out).
  double at(llvm::ArrayRef<int64_t> indices) const;

private:
  View view;
  mlir::ElementsAttr elements;
  mlir::Type type;
  llvm::ArrayRef<char> bytes; ///< raw, if the attribute has them
  bool splat = false;

  double element(int64_t index) const;
};

} // namespace zorse
