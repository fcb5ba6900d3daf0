#include "Decomposition.h"

#include "Interpret.h"

using namespace mlir;
using namespace zorse;
using namespace zorse::onnx_import;

static std::shared_ptr<const onnx::Attribute> makeAttribute(const char *name,
                                                            const Decomposition::Attribute &value) {
  auto attribute = std::make_shared<onnx::Attribute>();
  attribute->set_name(name);
  if (auto *number = std::get_if<int64_t>(&value)) {
    attribute->set_type(2);
    attribute->set_i(*number);
  } else if (auto *real = std::get_if<double>(&value)) {
    attribute->set_type(1);
    attribute->set_f(static_cast<float>(*real));
  } else if (auto *text = std::get_if<std::string>(&value)) {
    attribute->set_type(3);
    attribute->set_s(*text);
  } else {
    attribute->set_type(7);
    for (int64_t element : std::get<std::vector<int64_t>>(value))
      attribute->add_ints(element);
  }
  return attribute;
}

ImportedValue Decomposition::operator()(const char *op, std::vector<ImportedValue> operands,
                                        const Attributes &attributes) {
  if (failed)
    return {};
  GraphNode node;
  node.op = op;
  node.partOf = of.node.partOf.empty() ? of.node.op : of.node.partOf;
  node.name = of.node.name;
  node.opset = of.node.domain.empty() ? of.node.opset : of.state.model.opset(); // parts are in the
                                                                                // default domain
  for (auto &[name, value] : attributes)
    node.attributes[name] = makeAttribute(name, value);
  ImportState &state = of.state;
  // Temporary value numbers follow those of the file. A nested composition uses numbers after those
  // of its parent.
  const size_t first = state.values.size();
  for (ImportedValue &operand : operands) {
    node.inputs.push_back(operand ? static_cast<int>(state.values.size()) : -1);
    if (!operand)
      continue;
    state.values.push_back(std::move(operand));
    state.graph.valueNames.emplace_back();
  }
  node.outputs = {static_cast<int>(state.values.size())};
  state.values.emplace_back();
  state.graph.valueNames.emplace_back();
  OpContext inner(state, node);
  failed = mlir::failed(applyOperator(inner));
  ImportedValue result = failed ? ImportedValue() : std::move(state.values.back());
  state.values.resize(first);
  state.graph.valueNames.resize(first);
  return result;
}

ImportedValue Decomposition::ints(std::vector<int64_t> values) const {
  auto size = static_cast<int64_t>(values.size());
  return constantOf(ElementKind::I64, makeInts(ElementKind::I64, std::move(values)), {size});
}

ImportedValue Decomposition::move(const ImportedValue &x, int64_t from, int64_t to) {
  if (failed)
    return {};
  std::vector<int64_t> order;
  for (int64_t i = 0; i < x.rank(); ++i)
    if (i != from)
      order.push_back(i);
  order.insert(order.begin() + to, from);
  return transpose(x, std::move(order));
}

ImportedValue Decomposition::slice(const ImportedValue &x, int64_t axis, int64_t start,
                                   int64_t count, int64_t step) {
  return (*this)("Slice", {x, ints({start}), ints({start + (count - 1) * step + 1}), ints({axis}),
                           ints({step})});
}

LogicalResult Decomposition::result(ImportedValue value, size_t index) {
  if (failed)
    return failure();
  of.set(index, std::move(value));
  return success();
}
