// Reads elements of constants through views.
#pragma once

#include "Views.h"

#include "mlir/IR/BuiltinAttributes.h"

namespace zorse {

/// The elements of a constant tensor, seen through a view. Reads dense and resource attributes of
/// f32, f64, f16, bf16, i1, i32 and i64.
class ConstantTable {
public:
  /// Returns nullopt if the base of `view` is not a constant with readable elements.
  static std::optional<ConstantTable> read(const View &view);
  static std::optional<ConstantTable> read(mlir::Value value) { return read(analyzeView(value)); }

  /// Returns the element at these indices of the view's dimensions, without the sample axis.
  double at(llvm::ArrayRef<int64_t> indices) const;

private:
  View view;
  mlir::ElementsAttr elements;
  mlir::Type type;
  llvm::ArrayRef<char> bytes; ///< raw data, if the attribute has it
  bool splat = false;

  double element(int64_t index) const;
};

} // namespace zorse
