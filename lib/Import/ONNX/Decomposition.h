// Imports an operator as a sequence of other ONNX operators. Each is applied as if it were in the
// file in place of the operator.
#pragma once

#include "OpContext.h"

#include <initializer_list>
#include <utility>
#include <variant>

namespace zorse::onnx_import {

/// Applies operators for one node. After the first failure, it applies nothing more and reports no
/// further errors.
class Decomposition {
public:
  using Attribute = std::variant<int64_t, double, std::string, std::vector<int64_t>>;
  using Attributes = std::vector<std::pair<const char *, Attribute>>;

  explicit Decomposition(OpContext &of) : of(of) {}

  /// Applies `op` and returns its first result, or an absent value after a failure.
  ImportedValue operator()(const char *op, std::vector<ImportedValue> operands,
                           const Attributes &attributes = {});
  /// A scalar of the type of `like`. A float is not rounded, because all floats of a model are
  /// computed in one type.
  ImportedValue number(double value, const ImportedValue &like) const {
    return scalar(isFloat(like.type) ? ElementKind::F64 : like.type, value);
  }
  ImportedValue ints(std::vector<int64_t> values) const;
  /// x with `shape`.
  ImportedValue reshape(const ImportedValue &x, std::vector<int64_t> shape) {
    return (*this)("Reshape", {x, ints(std::move(shape))}, {{"allowzero", int64_t(1)}});
  }
  ImportedValue transpose(const ImportedValue &x, std::vector<int64_t> permutation) {
    return (*this)("Transpose", {x}, {{"perm", std::move(permutation)}});
  }
  /// x with dimension `from` moved to position `to`.
  ImportedValue move(const ImportedValue &x, int64_t from, int64_t to);
  ImportedValue unsqueeze(const ImportedValue &x, int64_t axis) {
    return (*this)("Unsqueeze", {x, ints({axis})});
  }
  ImportedValue squeeze(const ImportedValue &x, int64_t axis) {
    return (*this)("Squeeze", {x, ints({axis})});
  }
  /// Elements [start, start + count) of an axis.
  ImportedValue slice(const ImportedValue &x, int64_t axis, int64_t start, int64_t count,
                      int64_t step = 1);
  ImportedValue reduce(const char *op, const ImportedValue &x, std::vector<int64_t> axes,
                       bool keep = false) {
    return (*this)(op, {x, ints(std::move(axes))}, {{"keepdims", int64_t(keep)}});
  }
  ImportedValue cast(const ImportedValue &x, ElementKind type) {
    return (*this)("Cast", {x}, {{"to", static_cast<int64_t>(type)}});
  }

  bool hasFailed() const { return failed; }
  /// Sets result `index` of the node.
  mlir::LogicalResult result(ImportedValue value, size_t index = 0);

private:
  OpContext &of;
  bool failed = false;
};

} // namespace zorse::onnx_import
