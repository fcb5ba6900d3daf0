// Index arithmetic shared by the reference evaluator's loops.
#pragma once

#include "zorse/Support/ReferenceEvaluator.h"

#include "llvm/ADT/APFloat.h"

#include <numeric>

namespace zorse::reference {

inline int64_t product(llvm::ArrayRef<int64_t> shape, size_t begin = 0, size_t end = ~size_t(0)) {
  int64_t result = 1;
  for (size_t i = begin; i < std::min(end, shape.size()); ++i)
    result *= shape[i];
  return result;
}

inline std::vector<int64_t> stridesOf(llvm::ArrayRef<int64_t> shape) {
  std::vector<int64_t> strides(shape.size(), 1);
  for (int i = int(shape.size()) - 2; i >= 0; --i)
    strides[i] = strides[i + 1] * shape[i + 1];
  return strides;
}

/// Calls f(index) for every index of a shape, in row-major order.
template <typename F> void forEachIndex(llvm::ArrayRef<int64_t> shape, F f) {
  if (product(shape) == 0)
    return;
  std::vector<int64_t> index(shape.size(), 0);
  while (true) {
    f(llvm::ArrayRef<int64_t>(index));
    int d = int(shape.size()) - 1;
    while (d >= 0 && ++index[d] == shape[d])
      index[d--] = 0;
    if (d < 0)
      return;
  }
}

inline int64_t dot(llvm::ArrayRef<int64_t> a, llvm::ArrayRef<int64_t> b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), int64_t(0));
}

/// Calls f(vector index, offset of the vector, length) for every vector along the last dimension.
template <typename F> void forEachVector(const Tensor &x, F f) {
  int64_t width = x.shape.back();
  for (int64_t i = 0; i * width < x.size(); ++i)
    f(i, i * width, width);
}

/// Returns the static shape of a tensor type, with `rows` for `?`.
inline std::vector<int64_t> shapeOf(mlir::Type type, const Options &options) {
  std::vector<int64_t> shape;
  for (int64_t size : llvm::cast<mlir::RankedTensorType>(type).getShape())
    shape.push_back(mlir::ShapedType::isDynamic(size) ? options.rows : size);
  return shape;
}

/// Returns the number of a floating-point format nearest to `value`, ties to even.
inline double rounded(double value, const llvm::fltSemantics &format) {
  bool lost;
  llvm::APFloat number(value);
  number.convert(format, llvm::APFloat::rmNearestTiesToEven, &lost);
  number.convert(llvm::APFloat::IEEEdouble(), llvm::APFloat::rmNearestTiesToEven, &lost);
  return number.convertToDouble();
}

/// Evaluates an operation of the zorse dialect. Returns success without results for other
/// operations.
mlir::LogicalResult evaluateZorse(mlir::Operation *op, llvm::ArrayRef<Tensor> in,
                                  const Options &options, std::vector<Tensor> &results);
mlir::LogicalResult evaluateAttention(mlir::Operation *op, llvm::ArrayRef<Tensor> in,
                                      const Options &options, std::vector<Tensor> &results);

/// Evaluates a normalization over the last dimension, or its gradient. Leaves `results` unchanged
/// for other operations.
void evaluateNorm(mlir::Operation *op, llvm::ArrayRef<Tensor> in, const Options &options,
                  std::vector<Tensor> &results);

} // namespace zorse::reference
