// A call of an operator: the inputs that its implementation reads and the outputs that it sets.
#pragma once

#include "Array.h"

#include "../ONNX/Graph.h"

#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace zorse::onnx_reference {

using onnx_import::GraphNode;

struct Call {
  const GraphNode &node;
  std::vector<const Array *> inputs; ///< null if omitted
  std::vector<Array> outputs;        ///< one per output of the node
  std::string problem;               ///< why the call cannot be computed
  bool lossOfLabel = false;          ///< Options::lossOfLabel

  const Array *in(size_t index) const { return index < inputs.size() ? inputs[index] : nullptr; }
  bool out(Array array) { return outputs[0] = std::move(array), true; }
  bool fail(std::string text) { return problem = std::move(text), false; }

  /// Whether the operands with these numbers are present and are floats (`floats`) or integers and
  /// booleans (`integral`). Otherwise false, with `problem` set.
  bool floats(std::initializer_list<size_t> which) { return all(which, true); }
  bool integral(std::initializer_list<size_t> which) { return all(which, false); }
  bool all(std::initializer_list<size_t> which, bool isFloat);
  bool has(const std::string &name) const { return node.attributes.count(name) > 0; }
  int64_t integer(const std::string &name, int64_t otherwise) const;
  double real(const std::string &name, double otherwise) const;
  std::string string(const std::string &name, const std::string &otherwise) const;
  std::optional<std::vector<int64_t>> integers(const std::string &name) const;
  /// Operand `index` or the attribute, depending on the operator set.
  std::optional<std::vector<int64_t>> integers(size_t index, const std::string &name) const;
  /// Converts an axis counted from either end. Returns false and sets `problem` if it is out of
  /// range.
  bool axis(int64_t value, int64_t rank, int64_t &result);
};

/// Computes the outputs. Returns false and sets `problem` if it cannot.
using Operator = bool (*)(Call &call);
using OperatorMap = std::map<std::string, Operator>;

void addElementwise(OperatorMap &map);
void addActivations(OperatorMap &map);
void addShapes(OperatorMap &map);
void addMoves(OperatorMap &map);
void addPicks(OperatorMap &map);
void addReductions(OperatorMap &map);
void addNormalisations(OperatorMap &map);
void addProducts(OperatorMap &map);
void addLosses(OperatorMap &map);

/// `count` elements of an axis, from `start` on, `step` apart.
Array cut(const Array &x, int64_t axis, int64_t start, int64_t step, int64_t count);
/// The elements of `x` in another shape.
Array reshaped(const Array &x, Shape shape);
/// `x` expanded to a shape that it broadcasts to.
Array expanded(const Array &x, const Shape &shape);
/// `x` with its axes in another order.
Array transposed(const Array &x, const std::vector<int64_t> &order);
/// `x` converted to another element type.
Array converted(const Array &x, ElementKind type);

} // namespace zorse::onnx_reference
