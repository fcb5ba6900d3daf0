// Imports lengths, bounds and indices (arange(B)) that depend on the number of samples. A sample
// axis is recognized by the number B, never by its size.
#include "Lengths.h"

#include "Decomposition.h"
#include "Interpret.h"
#include "Known.h"

#include "zorse/Dialect/Zorse/SampleOps.h"

#include "llvm/ADT/StringSet.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>

using namespace mlir;
using namespace zorse;
using namespace zorse::onnx_import;

namespace {

constexpr int kFewNumbers = 64;

/// Inserts the integers of a small tensor. They may be sizes or bounds.
void insertNumbers(const onnx::Tensor &tensor, std::set<int64_t> &numbers) {
  if (tensor.int64_data_size() <= kFewNumbers)
    numbers.insert(tensor.int64_data().begin(), tensor.int64_data().end());
  if (tensor.data_type() != static_cast<int32_t>(ElementKind::I64) ||
      tensor.raw_data().size() > kFewNumbers * sizeof(int64_t))
    return;
  for (size_t at = 0; at + sizeof(int64_t) <= tensor.raw_data().size(); at += sizeof(int64_t)) {
    int64_t number = 0;
    std::memcpy(&number, tensor.raw_data().data() + at, sizeof(int64_t));
    numbers.insert(number);
  }
}

} // namespace

// The placeholder divides no number of the file. No other axis can therefore be mistaken for the
// sample axis.
void zorse::onnx_import::choosePlaceholder(ImportState &state) {
  constexpr std::array<int64_t, 20> candidates{61,  67,  71,  73,  79,  83,  89,  97,  101, 103,
                                               107, 109, 113, 127, 131, 137, 257, 263, 521, 523};
  std::set<int64_t> sizes{state.options.sequence};
  for (auto &[name, size] : state.options.dims)
    sizes.insert(size);
  for (auto &[value, info] : state.graph.inputs)
    for (const auto &dim : info->type().tensor_type().shape().dim())
      sizes.insert(dim.dim_value());
  for (auto &[value, tensor] : state.graph.body.initializers) {
    sizes.insert(tensor->dims().begin(), tensor->dims().end());
    insertNumbers(*tensor, sizes);
  }
  for (const GraphNode &node : state.graph.body.nodes)
    if (node.op == "Constant")
      for (const auto &[name, attribute] : node.attributes) {
        insertNumbers(attribute->t(), sizes);
        sizes.insert(attribute->i());
        if (attribute->ints_size() <= kFewNumbers)
          sizes.insert(attribute->ints().begin(), attribute->ints().end());
      }
  state.rows = candidates.back();
  for (int64_t candidate : candidates)
    if (std::none_of(sizes.begin(), sizes.end(),
                     [&](int64_t size) { return size > 0 && size % candidate == 0; })) {
      state.rows = candidate;
      return;
    }
}

Number zorse::onnx_import::samplesPerRow(const ImportState &state) {
  return state.options.groupRows > 0 ? Number(1.0) : Number::samples(); // the file sees one group
}

Number zorse::onnx_import::extentOf(const ImportState &state, const FactorList &list) {
  Number extent = 1.0;
  for (const Factor &factor : list)
    extent *= factor.sample ? samplesPerRow(state) : Number(static_cast<double>(factor.size));
  return extent;
}

ImportedValue zorse::onnx_import::fillOver(ElementKind kind, double value, View view) {
  view.offset = 0;
  for (FactorList &list : view.dims) {
    for (Factor &factor : list)
      factor.stride = 0;
    coalesce(list);
  }
  return {kind, std::move(view), Constant{makeFill(kind, 1, value)}};
}

/// Length of a constant size. The operators of a decomposition compute lengths from shapes, where
/// the placeholder size stands for the samples.
static Length plainLength(OpContext &op, int64_t size) {
  if (!op.node.partOf.empty() && !op.state.rowsBaked && size > 0 && size % op.state.rows == 0)
    return {size, true, {Factor{op.state.rows, 0, true}, Factor{size / op.state.rows, 0, false}}};
  return {size, false, {Factor{size, 0, false}}};
}

static FailureOr<Length> lengthOf(OpContext &op, const Number &number) {
  if (auto constant = number.constant();
      constant && *constant == std::floor(*constant) && std::fabs(*constant) < 0x1p53)
    return Length{static_cast<int64_t>(*constant),
                  false,
                  {Factor{static_cast<int64_t>(*constant), 0, false}}};
  if (auto inner = number.multipleOfPower(1); inner && *inner < (int64_t(1) << 40))
    return Length{
        op.state.rows * *inner, true, {Factor{op.state.rows, 0, true}, Factor{*inner, 0, false}}};
  return op.error("takes the length " + number.print() +
                  ", which depends on the number of samples B; expects lengths that are constant, "
                  "or a multiple of B: a program treats samples "
                  "apart. Give each sample its share along a separate axis");
}

FailureOr<std::vector<Length>> zorse::onnx_import::lengthsOf(OpContext &op, size_t index) {
  const ImportedValue &value = op.operand(index);
  std::vector<Length> lengths;
  if (value.isKnown()) {
    for (const Number &number : numbersOf(value)) {
      auto length = lengthOf(op, number);
      if (failed(length))
        return failure();
      lengths.push_back(std::move(*length));
    }
    return lengths;
  }
  auto sizes = constantInts(value);
  if (!sizes || value.sampleStep() != 0)
    return op.error("expects a constant shape; it depends on data");
  for (int64_t size : *sizes)
    lengths.push_back(plainLength(op, size));
  return lengths;
}

// In a file for any batch size, shapes specify where the samples are. A constant in their place is
// the batch size of the exported example.
LogicalResult zorse::onnx_import::checkTold(OpContext &op, const ImportedValue &result,
                                            const std::vector<bool> &isGiven) {
  const int64_t axis = result.view.sampleAxis();
  if (op.state.rowsBaked || axis < 0 || !op.node.partOf.empty() ||
      isGiven[static_cast<size_t>(axis)])
    return success();
  return op.error(
      "gives dimension " + Twine(axis) +
      " a fixed size, where the samples of a batch of any size are; export with a symbolic batch, "
      "or write -1 there");
}

// --- arange(B), and indices computed from it

/// Whether an operator only computes with sample indices and does not index with them.
static bool countsOnly(StringRef op) {
  static const llvm::StringSet<> known{"Add",        "Sub",         "Mul",
                                       "Div",        "Mod",         "Neg",
                                       "Abs",        "Sign",        "Sum",
                                       "Max",        "Min",         "Pow",
                                       "Clip",       "Where",       "Cast",
                                       "CastLike",   "Equal",       "Less",
                                       "Greater",    "LessOrEqual", "GreaterOrEqual",
                                       "ReduceSum",  "ReduceMax",   "ReduceMin",
                                       "ReduceMean", "BitwiseAnd"};
  return known.contains(op);
}

/// Converts a constant that depends on the sample index (sampleStep) to a value of the graph.
/// \param number  index of every sample, [B]
static ImportedValue withNumbers(Decomposition &make, const ImportedValue &constant,
                                 ImportedValue number) {
  number.view.dims = constant.view.dims; // repeats along all axes except the sample axis
  for (FactorList &list : number.view.dims) {
    for (Factor &factor : list)
      factor.stride = 0;
    coalesce(list);
  }
  ImportedValue rest = constant;
  rest.constant().sampleStep = 0;
  number = make.cast(number, constant.type);
  if (constant.sampleStep() != 1)
    number = make("Mul", {number, make.number(static_cast<double>(constant.sampleStep()), number)});
  return make("Add", {number, rest});
}

std::optional<LogicalResult> zorse::onnx_import::applyToSampleNumbers(OpContext &op) {
  const std::string &which = op.node.op;
  std::vector<ImportedValue> operands = op.operands();
  const bool others = llvm::all_of(operands, [](const ImportedValue &operand) {
    return operand.isConstant() && !isFloat(operand.type);
  });
  if (llvm::none_of(operands,
                    [](const ImportedValue &operand) { return operand.sampleStep() != 0; }) ||
      which == "Concat" || which == "Gather" || which == "SequenceConstruct" ||
      which == "ConcatFromSequence" || which == "SequenceAt")
    return std::nullopt;
  int64_t step = operands[0].sampleStep();
  const bool isInteger = which != "Cast" ||
                         (!isFloat(static_cast<ElementKind>(op.integer("to"))) &&
                          static_cast<ElementKind>(op.integer("to")) != ElementKind::Bool);
  bool supported = false;
  if (which == "Shape" || which == "Size") {
    step = 0;
    supported = true;
  } else if (which == "Add" || which == "Sub") {
    step = which == "Add" ? addInts(step, operands[1].sampleStep())
                          : subInts(step, operands[1].sampleStep());
    supported = others;
  } else if (which == "Mul") {
    const ImportedValue &other = operands[0].sampleStep() != 0 ? operands[1] : operands[0];
    auto factor = other.sampleStep() == 0 && others ? uniformValue(op.state, other) : std::nullopt;
    supported = factor && std::fabs(*factor) < 0x1p31;
    step = supported ? mulInts(step + operands[1].sampleStep(), static_cast<int64_t>(*factor)) : 0;
  } else if (which == "Identity" || which == "Squeeze" || which == "Unsqueeze" ||
             which == "Reshape" || which == "Expand" || which == "Transpose" ||
             which == "Flatten" || which == "Cast") {
    supported = isInteger && (operands.size() < 2 || operands[1].sampleStep() == 0);
  }
  if (!supported && !countsOnly(which))
    return op.error("reads the numbers of the samples in the batch (arange), which elementwise "
                    "operators, sums and ids that pick within each "
                    "sample may: x[arange(B), places], or sample * T + place");
  if (!supported) { // compute with the indices as values of the graph
    Decomposition make(op);
    for (ImportedValue &operand : operands)
      if (operand.sampleStep() != 0)
        operand = withNumbers(
            make, operand,
            wrap(create<SampleNumberOp>(
                     op.state,
                     RankedTensorType::get({ShapedType::kDynamic}, op.state.builder.getI64Type())),
                 ElementKind::I64, {op.state.rows}));
    return make.hasFailed() ? failure() : applyWith(op, std::move(operands));
  }
  for (ImportedValue &operand : operands)
    if (operand.isConstant())
      operand.constant().sampleStep = 0;
  LogicalResult status = applyWith(op, std::move(operands));
  if (succeeded(status) && op.node.outputs[0] >= 0 && step != 0)
    op.result().constant().sampleStep = step;
  return status;
}

LogicalResult zorse::onnx_import::rangeOfSamples(OpContext &op) {
  auto start = uniformNumber(op.state, op.operand(0)),
       limit = uniformNumber(op.state, op.operand(1)),
       delta = uniformNumber(op.state, op.operand(2));
  if (!start || !limit || !delta)
    return op.error("expects bounds and a step that are numbers");
  const auto from = start->constant(), step = delta->constant();
  const bool integers = from && step && *from == std::floor(*from) && *step == std::floor(*step) &&
                        *step > 0;
  if (!integers || std::fabs(*from) > 0x1p31 || *step > 0x1p31)
    return op.error("counts from " + start->print() + " to " + limit->print() + " in steps of " +
                    delta->print() +
                    "; expects to count the samples (B) in whole numbers from a constant on");
  auto length = lengthOf(op, *Number::apply("ceil", {(*limit - *start) / *delta}));
  if (failed(length))
    return failure();
  // Element `sample * inner + place` of the range: the part that depends on the sample is stored in
  // sampleStep.
  const int64_t inner = length->perSample ? length->size / op.state.rows : length->size;
  const ElementKind type = op.operand(0).type, counted = isFloat(type) ? ElementKind::I64 : type;
  ImportedValue value = constantOf(counted, makeIota(counted, inner, *from, *step), {inner});
  if (length->perSample) {
    value.view.dims[0].insert(value.view.dims[0].begin(), Factor{op.state.rows, 0, true});
    value.constant().sampleStep = mulInts(inner, static_cast<int64_t>(*step));
  }
  Decomposition make(op);
  return make.result(isFloat(type) ? make.cast(value, type) : std::move(value));
}

// Bounds that depend on B are supported if they select whole samples: bounds at or beyond the ends
// of the axis for every B, or multiples of B (below).
LogicalResult zorse::onnx_import::sliceByNumbers(OpContext &op) {
  FailureOr<ImportedValue> starts = asKnown(op, op.operand(1)), ends = asKnown(op, op.operand(2));
  if (failed(starts) || failed(ends))
    return failure();
  const std::vector<Number> from = numbersOf(*starts), to = numbersOf(*ends);
  const ImportedValue &x = op.operand(0);
  std::vector<int64_t> axes(from.size()), first, last;
  for (size_t i = 0; i < axes.size(); ++i)
    axes[i] = static_cast<int64_t>(i);
  if (op.has(3)) {
    auto given = constantInts(op.operand(3));
    if (!given)
      return op.error("expects constant axes");
    axes = *given;
  }
  if (from.size() != to.size() || axes.size() != from.size())
    return op.error("expects equal numbers of starts, ends and axes");
  for (size_t i = 0; i < from.size(); ++i) {
    const int64_t axis = axes[i] < 0 ? axes[i] + x.rank() : axes[i];
    if (axis < 0 || axis >= x.rank())
      return op.error("axis " + Twine(axes[i]) + " is outside the rank");
    const Number extent = extentOf(op.state, x.view.dims[axis]);
    const bool samples = x.view.sampleAxis() == axis;
    // On the sample axis, a multiple of B is a bound between elements that each contain all
    // samples.
    const auto bound = [&](const Number &number) -> std::optional<double> {
      if (auto constant = number.constant())
        return constant;
      if (number.isLessThan(extent) == false)
        return 0x1p62;
      auto multiple = samples ? number.multipleOfPower(1) : std::nullopt;
      return multiple ? std::optional(static_cast<double>(*multiple * op.state.rows))
                      : std::nullopt;
    };
    const auto begin = bound(from[i]), end = bound(to[i]);
    if (!begin || !end)
      return op.error(
          "cuts dimension " + Twine(axis) + " of " + extent.print() + " elements from " +
          from[i].print() + " to " + to[i].print() +
          ", which depends on the number of samples B; expects constant bounds, or the whole axis");
    first.push_back(static_cast<int64_t>(*begin));
    last.push_back(static_cast<int64_t>(std::min(*end, 0x1p62)));
  }
  const auto count = static_cast<int64_t>(from.size());
  std::vector<ImportedValue> operands = op.operands();
  operands[1] = constantOf(ElementKind::I64, makeInts(ElementKind::I64, std::move(first)), {count});
  operands[2] = constantOf(ElementKind::I64, makeInts(ElementKind::I64, std::move(last)), {count});
  return applyWith(op, std::move(operands));
}

LogicalResult zorse::onnx_import::checkBounds(OpContext &op, const ImportedValue &x, int64_t axis,
                                              int64_t start, int64_t end) {
  constexpr int64_t kEverything = (int64_t(1) << 31) - 2;
  const bool whole = start == 0 && end >= kEverything,
             reversed = start == -1 && end <= -kEverything;
  const auto outside = [&](int64_t bound) {
    return bound == 0 || bound >= kEverything || bound % op.state.rows == 0;
  };
  if (op.state.rowsBaked || x.view.sampleAxis() != axis || !op.node.partOf.empty() || whole ||
      reversed || (outside(start) && outside(end)))
    return success();
  return op.error("selects some of the samples: it cuts the axis that holds them from " +
                  Twine(start) + " to " + Twine(end));
}

int64_t zorse::onnx_import::countSampleFactors(const View &view) {
  int64_t count = 0;
  for (const FactorList &list : view.dims)
    count +=
        std::count_if(list.begin(), list.end(), [](const Factor &factor) { return factor.sample; });
  return count;
}

LogicalResult zorse::onnx_import::checkExtent(OpContext &op, const FactorList &list) {
  int64_t size = 1;
  for (const Factor &factor : list)
    size *= factor.sample ? 1 : factor.size;
  if (op.state.rowsBaked || size == 0 || size % op.state.rows != 0)
    return success();
  return op.error("reads the size " + Twine(size) +
                  " of an axis that may hold the samples and is not known to; write the shape with "
                  "-1, or with the batch size in a separate "
                  "dimension");
}
