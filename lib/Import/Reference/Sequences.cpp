// Elements of sequences. Exporters split a tensor into a sequence.
#include "Evaluator.h"

using namespace zorse::onnx_reference;

std::vector<int> Evaluator::needsOfElement(const GraphNode &node) {
  std::vector<int> list;
  auto add = [&](int value) {
    if (value >= 0 && !values.count(value))
      list.push_back(value);
  };
  add(node.inputs[1]);
  if (auto sequence = producers.find(node.inputs[0]); sequence != producers.end())
    for (int input : sequence->second->inputs)
      add(input);
  return list;
}

/// Sizes of the parts along the axis. If one size is given for all parts, the last part may be
/// shorter.
static std::vector<int64_t> partSizes(const Array *split, int64_t extent) {
  std::vector<int64_t> sizes;
  if (split && split->rank() == 1)
    return split->integers;
  const int64_t each = split && split->size() == 1 ? split->integers[0] : 1;
  for (int64_t at = 0; each > 0 && at < extent; at += each)
    sizes.push_back(std::min(each, extent - at));
  return sizes;
}

bool Evaluator::applyElement(const GraphNode &node) {
  auto producer = producers.find(node.inputs[0]);
  if (producer == producers.end() ||
      (producer->second->op != "SplitToSequence" && producer->second->op != "SequenceConstruct"))
    return why = node.describe() + ": its sequence is not known to the evaluator", false;
  const GraphNode &sequence = *producer->second;
  const Array &index = values.at(node.inputs[1]);
  if (index.isFloat() || index.size() != 1)
    return why = node.describe() + ": expects one position", false;
  auto position = [&](int64_t count) {
    return index.integers[0] < 0 ? index.integers[0] + count : index.integers[0];
  };
  const auto outside = [&](int64_t count) {
    return why = node.describe() + ": takes element " + std::to_string(index.integers[0]) + " of " +
                 std::to_string(count),
           false;
  };
  if (sequence.op == "SequenceConstruct") {
    const auto count = static_cast<int64_t>(sequence.inputs.size());
    const int64_t at = position(count);
    return at < 0 || at >= count
               ? outside(count)
               : store(node.outputs[0], Array(values.at(sequence.inputs[size_t(at)])));
  }
  const Array &x = values.at(sequence.inputs[0]);
  const Array *split = sequence.inputs.size() > 1 && sequence.inputs[1] >= 0
                           ? &values.at(sequence.inputs[1])
                           : nullptr;
  Call call{sequence, {}, {}, {}, false};
  int64_t axis = 0;
  if (!call.axis(call.integer("axis", 0), x.rank(), axis))
    return why = sequence.describe() + ": " + call.problem, false;
  const std::vector<int64_t> sizes = partSizes(split, x.shape[size_t(axis)]);
  const auto count = static_cast<int64_t>(sizes.size());
  const int64_t at = position(count);
  if (at < 0 || at >= count)
    return outside(count);
  int64_t begin = 0;
  for (int64_t i = 0; i < at; ++i)
    begin += sizes[size_t(i)];
  if (begin + sizes[size_t(at)] > x.shape[size_t(axis)])
    return why = sequence.describe() + ": takes more than there is", false;
  Array part = cut(x, axis, begin, 1, sizes[size_t(at)]);
  if (!split && call.integer("keepdims", 1) == 0)
    part.shape.erase(part.shape.begin() + axis);
  return store(node.outputs[0], std::move(part));
}
