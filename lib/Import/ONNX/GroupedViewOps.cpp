// Views and picks of groups of samples.
#include "GroupedNode.h"

#include <algorithm>

using namespace mlir;
using namespace zorse;
using namespace zorse::onnx_import;

LogicalResult GroupedNode::shape() {
  std::vector<int64_t> sizes = in[0].shape();
  if (rows[0])
    sizes.erase(sizes.begin());
  if (op.node.op == "Size") {
    int64_t size = 1;
    for (int64_t each : sizes)
      size *= each;
    return op.result(constantOf(ElementKind::I64, makeInts(ElementKind::I64, {size}), {}));
  }
  const auto count = static_cast<int64_t>(sizes.size());
  int64_t begin = op.integer("start", 0), end = op.integer("end", count);
  begin = std::clamp<int64_t>(begin < 0 ? begin + count : begin, 0, count);
  end = std::clamp<int64_t>(end < 0 ? end + count : end, begin, count);
  return op.result(make.ints({sizes.begin() + begin, sizes.begin() + end}));
}

LogicalResult GroupedNode::transpose() {
  std::vector<int64_t> permutation{0};
  auto given = op.integers("perm");
  for (int64_t i = 0; i < rank(0); ++i)
    permutation.push_back(1 + (given ? (*given)[static_cast<size_t>(i)] : rank(0) - 1 - i));
  return done(make.transpose(in[0], permutation), true);
}

LogicalResult GroupedNode::view() {
  const std::string &which = op.node.op;
  auto given = which == "Flatten" ? std::optional<std::vector<int64_t>>()
               : op.has(1)        ? constantInts(op.operand(1))
                                  : op.integers("axes");
  if (!given && which != "Flatten" && which != "Squeeze")
    return op.error("expects constant sizes and axes");
  if (which == "Reshape")
    return reshape(*given);
  if (which == "Flatten") {
    const int64_t axis = op.integer("axis"), at = axis < 0 ? axis + rank(0) : axis;
    int64_t front = 1, back = 1;
    for (int64_t i = 0; i < rank(0); ++i)
      (i < at ? front : back) *= in[0].view.size(i + 1);
    return done(make.reshape(in[0], {in[0].view.size(0), front, back}), true);
  }
  if (which == "Expand") {
    ImportedValue x = padded(0, static_cast<int64_t>(given->size()));
    std::vector<int64_t> sizes = x.shape();
    for (size_t i = 0; i < given->size(); ++i) {
      int64_t &size = sizes[sizes.size() - 1 - i];
      size = std::max(size, (*given)[given->size() - 1 - i]);
    }
    return done(make("Expand", {x, make.ints(sizes)}), true);
  }
  const int64_t more = which == "Unsqueeze" ? static_cast<int64_t>(given->size()) : 0;
  std::vector<int64_t> axes;
  for (int64_t i = 0; which == "Squeeze" && !given && i < rank(0); ++i)
    if (in[0].view.size(i + 1) == 1)
      axes.push_back(i + 1);
  for (int64_t axis : given.value_or(std::vector<int64_t>()))
    axes.push_back((axis < 0 ? axis + rank(0) + more : axis) + 1);
  return done(axes.empty() ? in[0] : make(which.c_str(), {in[0], make.ints(axes)}), true);
}

LogicalResult GroupedNode::reshape(std::vector<int64_t> sizes) {
  int64_t all = in[0].view.elements() / in[0].view.size(0), known = 1, open = -1;
  const bool zeroIsEmpty = op.integer("allowzero") != 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 0 && !zeroIsEmpty && static_cast<int64_t>(i) < rank(0))
      sizes[i] = in[0].view.size(static_cast<int64_t>(i) + 1);
    if (sizes[i] < 0)
      open = static_cast<int64_t>(i);
    else
      known *= sizes[i];
  }
  if (open >= 0 && known > 0)
    sizes[static_cast<size_t>(open)] = all / known;
  sizes.insert(sizes.begin(), in[0].view.size(0));
  return done(make.reshape(in[0], sizes), true);
}

LogicalResult GroupedNode::slice() {
  std::vector<ImportedValue> operands = in;
  auto starts = constantInts(op.operand(1));
  if (!starts)
    return op.error("expects constant bounds");
  std::optional<std::vector<int64_t>> axes;
  if (failed(op.axes(3, rank(0), axes)))
    return failure();
  if (!axes) {
    axes.emplace();
    for (size_t i = 0; i < starts->size(); ++i)
      axes->push_back(static_cast<int64_t>(i));
  }
  for (int64_t &axis : *axes)
    ++axis;
  if (operands.size() < 4)
    operands.resize(4);
  operands[3] = make.ints(*axes);
  return done(make("Slice", std::move(operands)), true);
}

LogicalResult GroupedNode::concat() {
  const int64_t axis = op.integer("axis");
  int64_t most = 0;
  for (size_t i = 0; i < in.size(); ++i)
    most = std::max(most, rank(i));
  std::vector<ImportedValue> operands;
  for (size_t i = 0; i < in.size(); ++i) {
    operands.push_back(inEveryGroup(i));
    if (make.hasFailed())
      return failure();
  }
  return done(make("Concat", std::move(operands), {{"axis", (axis < 0 ? axis + most : axis) + 1}}),
              true);
}

ImportedValue GroupedNode::inEveryGroup(size_t i) {
  ImportedValue value = in[i];
  if (rows[i])
    return value;
  std::vector<int64_t> sizes = value.shape();
  sizes.insert(sizes.begin(), op.state.rows);
  value.view.dims.insert(value.view.dims.begin(), FactorList{});
  value = make("Expand", {value, make.ints(sizes)});
  if (!make.hasFailed())
    value.view.dims[0] = FactorList{Factor{op.state.rows, 0, true}};
  return value;
}

LogicalResult GroupedNode::gather() {
  const int64_t given = op.integer("axis"), axis = given < 0 ? given + rank(0) : given;
  if (!rows[1])
    return done(make("Gather", {in[0], in[1]}, {{"axis", axis + 1}}));
  // The axis becomes the first one, for which every group has separate ids.
  const int64_t first = rows[0], places = rank(1);
  ImportedValue from = make.move(in[0], axis + first, first), ids = in[1], picked;
  if (rows[0]) {
    ids.view.dims.emplace_back();
    picked = make("GatherND", {from, ids}, {{"batch_dims", int64_t(1)}});
  } else {
    picked = make("Gather", {from, ids}, {{"axis", int64_t(0)}});
  }
  if (make.hasFailed() || axis == 0)
    return done(std::move(picked));
  std::vector<int64_t> order{0}; // [row, ids..., before the axis..., behind it...]
  for (int64_t i = 0; i < axis; ++i)
    order.push_back(1 + places + i);
  for (int64_t i = 0; i < places; ++i)
    order.push_back(1 + i);
  for (int64_t i = axis; i + 1 < rank(0); ++i)
    order.push_back(1 + places + i);
  return done(make.transpose(picked, order));
}

LogicalResult GroupedNode::gatherND() {
  const int64_t batched = op.integer("batch_dims");
  if (!rows[0] && batched == 0)
    return done(make("GatherND", {in[0], in[1]}));
  ImportedValue from = inEveryGroup(0), ids = inEveryGroup(1);
  return done(make("GatherND", {from, ids}, {{"batch_dims", batched + 1}}));
}
