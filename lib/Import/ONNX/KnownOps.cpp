// Operators on numbers known before the step: elementwise functions, reductions, and operators that
// move elements. Unlisted operators reject such numbers, so that no operator reads a number of
// samples other than that of the step.
#include "Known.h"

#include "Decomposition.h"
#include "Interpret.h"
#include "Lengths.h"
#include "LoopNest.h"
#include "Parts.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/ADT/StringSwitch.h"

#include <algorithm>
#include <cmath>

using namespace mlir;
using namespace zorse;
using namespace zorse::onnx_import;

constexpr int64_t kMaxNumbers = 1024; // max numbers of one value
constexpr int64_t kMaxInGraph = 64;   // max numbers of one value that is emitted into the graph

// --- values

ImportedValue zorse::onnx_import::knownOver(ElementKind kind, std::vector<Number> numbers,
                                            const View &like) {
  View view{0, like.dims};
  int64_t stride = 1;
  for (size_t axis = view.dims.size(); axis-- > 0;) {
    for (size_t i = view.dims[axis].size(); i-- > 0;) {
      Factor &factor = view.dims[axis][i];
      factor.stride = factor.sample ? 0 : stride;
      stride *= factor.sample ? 1 : factor.size;
    }
    coalesce(view.dims[axis]);
  }
  return {kind, std::move(view), Known{std::move(numbers)}};
}

ImportedValue zorse::onnx_import::knownScalar(ElementKind kind, const Number &number) {
  return simplified(knownOver(kind, {number}, View{}));
}

ImportedValue zorse::onnx_import::simplified(ImportedValue known) {
  std::vector<double> values;
  for (const Number &number : known.numbers()) {
    auto value = number.constant();
    if (!value)
      return known;
    values.push_back(*value);
  }
  if (isFloat(known.type)) {
    known.content = Constant{makeFloats(known.type, std::move(values))};
    return known;
  }
  std::vector<int64_t> ints;
  ints.reserve(values.size());
  for (double value : values)
    ints.push_back(truncateToInt(value));
  known.content = Constant{makeInts(known.type, std::move(ints))};
  return known;
}

/// Offsets of all elements in row-major order. Repeats over samples are listed once.
static std::vector<int64_t> offsetsOf(const View &view) {
  std::vector<int64_t> offsets{view.offset};
  for (const FactorList &list : view.dims)
    for (const Factor &factor : list) {
      if (factor.sample)
        continue;
      std::vector<int64_t> next;
      next.reserve(offsets.size() * static_cast<size_t>(factor.size));
      for (int64_t offset : offsets)
        for (int64_t i = 0; i < factor.size; ++i)
          next.push_back(offset + i * factor.stride);
      offsets = std::move(next);
    }
  return offsets;
}

std::vector<Number> zorse::onnx_import::numbersOf(const ImportedValue &known) {
  std::vector<Number> out;
  for (int64_t offset : offsetsOf(known.view))
    out.push_back(known.numbers()[static_cast<size_t>(offset)]);
  return out;
}

/// Number of elements that may differ.
static int64_t movingElements(const View &view) {
  int64_t count = 1;
  for (const FactorList &list : view.dims)
    for (const Factor &factor : list)
      count *= factor.stride == 0 ? 1 : factor.size;
  return count;
}

FailureOr<ImportedValue> zorse::onnx_import::asKnown(OpContext &op, const ImportedValue &value) {
  if (value.isKnown())
    return value;
  ImportedValue small = compressed(op.state, value);
  if (!value.isConstant() || value.sampleStep() != 0 || value.view.elements() == 0 ||
      movingElements(small.view) > kMaxNumbers)
    return op.error("combines numbers that are known only with the batch with a tensor that is "
                    "none of at most " +
                    Twine(kMaxNumbers) + " numbers");
  ImportedValue out = small;
  out.content = Known{};
  out.view.offset = 0;
  // One number for every position with a nonzero stride.
  View moving;
  moving.offset = small.view.offset;
  int64_t stride = 1;
  for (size_t axis = out.view.dims.size(); axis-- > 0;)
    for (size_t i = out.view.dims[axis].size(); i-- > 0;) {
      Factor &factor = out.view.dims[axis][i];
      if (factor.stride == 0)
        continue;
      moving.dims.insert(moving.dims.begin(), FactorList{factor});
      factor.stride = stride;
      stride *= factor.size;
    }
  for (int64_t offset : offsetsOf(moving)) {
    double number = 0;
    value.lazy()->readFloats(offset, 0, 1, &number);
    if (!std::isfinite(number) ||
        (!isFloat(value.type) && std::fabs(number) > 0x1p53 && std::fabs(number) < 0x1p62))
      return op.error("combines numbers that are known only with the batch with " +
                      Twine(std::to_string(number)));
    out.numbers().emplace_back(number);
  }
  return out;
}

std::optional<Number> zorse::onnx_import::uniformNumber(const ImportState &state,
                                                        const ImportedValue &value) {
  if (value.isConstant() && value.sampleStep() == 0) {
    auto number = uniformValue(state, value);
    return number && std::isfinite(*number) ? std::optional<Number>(*number) : std::nullopt;
  }
  if (!value.isKnown())
    return std::nullopt;
  std::vector<Number> numbers = numbersOf(value);
  for (const Number &number : numbers)
    if (number.isEqualTo(numbers[0]) != true)
      return std::nullopt;
  return numbers.empty() ? std::nullopt : std::optional<Number>(numbers[0]);
}

Number zorse::onnx_import::countOf(ImportState &state, Value numerator, ReduceKind reduce) {
  for (size_t i = 0; i < state.counts.size(); ++i)
    if (state.counts[i].numerator == numerator && state.counts[i].reduce == reduce)
      return Number::count(static_cast<int64_t>(i));
  state.counts.push_back({numerator, reduce});
  return Number::count(static_cast<int64_t>(state.counts.size()) - 1);
}

Value zorse::onnx_import::knownValue(ImportState &state, const Number &number) {
  auto type = RankedTensorType::get({}, elementType(state, ElementKind::F32));
  if (auto value = number.constant())
    return splat(state, *value, type);
  Value known = create<KnownOp>(state, RankedTensorType::get({}, state.builder.getF64Type()),
                                state.builder.getStringAttr(number.print()));
  return type.getElementType().isF64() ? known : create<arith::TruncFOp>(state, type, known);
}

FailureOr<ImportedValue> zorse::onnx_import::asTensor(OpContext &op, const ImportedValue &known) {
  if (!isFloat(known.type) && known.type != ElementKind::I64 && known.type != ElementKind::I32 &&
      known.type != ElementKind::Bool)
    return op.error("combines " + Twine(name(known.type)) +
                    " numbers that are known only with the batch (" +
                    (known.numbers().empty() ? "" : known.numbers()[0].print()) +
                    ") with values of samples; cast them to int64");
  // Integers and booleans are converted from f64, which represents them exactly.
  const auto valueOf = [&](const Number &number) -> Value {
    if (isFloat(known.type))
      return knownValue(op.state, number);
    auto type = RankedTensorType::get({}, elementType(op.state, known.type)),
         real = RankedTensorType::get({}, op.state.builder.getF64Type());
    if (auto value = number.constant())
      return splat(op.state, *value, type);
    Value made = create<KnownOp>(op.state, real, op.state.builder.getStringAttr(number.print()));
    return known.type == ElementKind::Bool
               ? create<arith::CmpFOp>(op.state, arith::CmpFPredicate::UNE, made,
                                       splat(op.state, 0, real))
               : create<arith::FPToSIOp>(op.state, type, made);
  };
  ImportedValue out = known;
  out.view.offset = 0;
  if (auto number = uniformNumber(op.state, known)) {
    out.content = Tensor{valueOf(*number)};
    for (FactorList &list : out.view.dims)
      for (Factor &factor : list)
        factor.stride = 0;
    return out;
  }
  std::vector<Number> numbers = numbersOf(known);
  if (static_cast<int64_t>(numbers.size()) > kMaxInGraph)
    return op.error("combines " + Twine(numbers.size()) +
                    " numbers that are known only with the batch with values of samples; at most " +
                    Twine(kMaxInGraph) + " are possible");
  SmallVector<Value> parts;
  for (const Number &number : numbers)
    parts.push_back(reshapeTo(op.state, valueOf(number), {1}));
  out.content = Tensor{create<ConcatOp>(op.state, parts, int64_t(0))};
  out.view = knownOver(known.type, {}, known.view).view;
  return out;
}

// --- elementwise functions

/// The function in printed expressions that an operator corresponds to.
static const char *functionOf(StringRef op) {
  return llvm::StringSwitch<const char *>(op)
      .Case("Sqrt", "sqrt")
      .Case("Exp", "exp")
      .Case("Log", "log")
      .Case("Abs", "abs")
      .Case("Floor", "floor")
      .Case("Ceil", "ceil")
      .Case("Round", "round")
      .Case("Tanh", "tanh")
      .Case("Sigmoid", "sigmoid")
      .Case("Max", "max")
      .Case("Min", "min")
      .Case("Pow", "pow")
      .Case("Equal", "eq")
      .Case("Less", "less")
      .Case("LessOrEqual", "less_eq")
      .Case("Where", "where")
      .Default(nullptr);
}

static std::optional<Number> castNumber(const Number &number, ElementKind from, ElementKind to) {
  if (to == ElementKind::Bool && from != ElementKind::Bool)
    return Number(1.0) - *Number::apply("eq", {number, 0.0});
  return isFloat(from) && !isFloat(to) ? Number::apply("trunc", {number}) : number;
}

ImportedValue zorse::onnx_import::castKnown(ImportedValue known, ElementKind type) {
  for (Number &number : known.numbers())
    number = *castNumber(number, known.type, type);
  known.type = type;
  return simplified(std::move(known));
}

static std::optional<Number> numberOf(OpContext &op, ArrayRef<Number> x,
                                      ArrayRef<ElementKind> types) {
  const std::string &which = op.node.op;
  const bool floats = isFloat(types[0]), truth = types[0] == ElementKind::Bool;
  if (which == "Cast")
    return castNumber(x[0], types[0], static_cast<ElementKind>(op.integer("to")));
  if (which == "CastLike")
    return castNumber(x[0], types[0], types[1]);
  if (which == "Neg")
    return -x[0];
  if (which == "Reciprocal")
    return Number(1.0) / x[0];
  if (which == "Relu")
    return Number::apply("max", {x[0], 0.0});
  if (which == "Not" || (truth && which == "Xor"))
    return which == "Not" ? Number(1.0) - x[0] : x[0] + x[1] - Number(2.0) * x[0] * x[1];
  if (truth && (which == "And" || which == "Or"))
    return which == "And" ? x[0] * x[1] : x[0] + x[1] - x[0] * x[1];
  if (which == "Sign") {
    auto above = Number::apply("less", {0.0, x[0]}), below = Number::apply("less", {x[0], 0.0});
    return *above - *below;
  }
  if (which == "Greater" || which == "GreaterOrEqual")
    return Number::apply(which == "Greater" ? "less" : "less_eq", {x[1], x[0]});
  if (which == "Clip") {
    Number out = x[0];
    for (size_t i = 1; i < x.size(); ++i)
      if (op.has(i))
        out = *Number::apply(i == 1 ? "max" : "min", {out, x[i]});
    return out;
  }
  if (which == "Add" || which == "Sum" || which == "Sub" || which == "Mul" || which == "Max" ||
      which == "Min") {
    Number out = x[0];
    for (const Number &other : x.drop_front())
      out = which == "Sub"   ? out - other
            : which == "Mul" ? out * other
            : which == "Max" ? *Number::apply("max", {out, other})
            : which == "Min" ? *Number::apply("min", {out, other})
                             : out + other;
    return out;
  }
  if (which == "Div")
    return floats ? x[0] / x[1] : Number::apply("trunc", {x[0] / x[1]});
  if (which == "Mod") {
    auto quotient = Number::apply(op.integer("fmod") ? "trunc" : "floor", {x[0] / x[1]});
    return x[0] - x[1] * *quotient;
  }
  if (const char *function = functionOf(which))
    return Number::apply(function, {x.begin(), x.end()});
  return std::nullopt;
}

static ElementKind typeOfResult(const std::string &op, ArrayRef<ElementKind> types, int64_t to) {
  if (op == "Cast")
    return static_cast<ElementKind>(to);
  static const llvm::StringSet<> truths{"Equal",   "Less",           "LessOrEqual",
                                        "Greater", "GreaterOrEqual", "Not"};
  return truths.contains(op)                 ? ElementKind::Bool
         : op == "CastLike" || op == "Where" ? types[1]
                                             : types[0];
}

/// Applies any elementwise operator to numbers.
static LogicalResult foldNumbers(OpContext &op) {
  std::vector<ImportedValue> operands;
  std::vector<ElementKind> types;
  for (size_t i = 0; i < op.node.inputs.size(); ++i) {
    types.push_back(op.operand(i).type);
    auto known = op.has(i) ? asKnown(op, op.operand(i))
                           : FailureOr<ImportedValue>(knownScalar(types[0], 0.0));
    if (failed(known))
      return failure();
    if (!known->isKnown())
      known = asKnown(op, *known);
    operands.push_back(std::move(*known));
  }
  auto nest = LoopNest::of(op, std::move(operands));
  if (failed(nest))
    return failure();
  std::vector<View> sources;
  for (const ImportedValue &operand : nest->operands())
    sources.push_back({operand.view.offset, {}});
  int64_t count = 1;
  for (const LoopNest::Axis *axis : nest->moving()) {
    for (size_t k = 0; k < sources.size(); ++k)
      sources[k].dims.push_back({Factor{axis->size, axis->strides[k], false}});
    count *= axis->size;
    if (count > kMaxNumbers)
      return op.error("makes more than " + Twine(kMaxNumbers) +
                      " numbers that are known only with the batch");
  }
  std::vector<std::vector<int64_t>> offsets;
  offsets.reserve(sources.size());
  for (const View &source : sources)
    offsets.push_back(offsetsOf(source));
  ImportedValue result{typeOfResult(op.node.op, types, op.node.op == "Cast" ? op.integer("to") : 0),
                       nest->view(), Known{}};
  for (size_t i = 0; i < offsets[0].size(); ++i) {
    std::vector<Number> x;
    x.reserve(sources.size());
    for (size_t k = 0; k < sources.size(); ++k)
      x.push_back(nest->operands()[k].numbers()[static_cast<size_t>(offsets[k][i])]);
    auto number = numberOf(op, x, types);
    if (!number || !number->isValid())
      return op.error(
          number
              ? "makes a number that no step can know: it divides by zero, or is too long a formula"
              : "is not supported on a number that is known only with the batch (" + x[0].print() +
                    ")");
    result.numbers().push_back(std::move(*number));
  }
  return op.result(simplified(std::move(result)));
}

// --- reductions, and elements that move

LogicalResult zorse::onnx_import::reduceKnown(OpContext &op, const ImportedValue &x,
                                              const std::vector<bool> &reduced, bool keep) {
  const std::string &which = op.node.op;
  View kept, gone;
  kept.offset = x.view.offset;
  Number copies = 1.0;
  for (int64_t axis = 0; axis < x.rank(); ++axis) {
    if (!reduced[axis]) {
      kept.dims.push_back(x.view.dims[axis]);
      continue;
    }
    if (keep)
      kept.dims.emplace_back();
    for (const Factor &factor : x.view.dims[axis])
      if (factor.stride == 0)
        copies *= extentOf(op.state, {factor});
      else
        gone.dims.push_back({factor});
  }
  if (which == "ReduceProd" && !copies.is(1))
    return op.error("multiplies repeated numbers, which is not supported");
  std::vector<Number> numbers;
  const std::vector<int64_t> inner = offsetsOf(gone);
  if (inner.empty())
    return op.error("reduces an empty tensor");
  for (int64_t offset : offsetsOf(kept)) {
    std::vector<Number> all;
    all.reserve(inner.size());
    for (int64_t step : inner)
      all.push_back(x.numbers()[static_cast<size_t>(offset + step)]);
    Number total = all[0];
    for (size_t i = 1; i < all.size(); ++i)
      total = which == "ReduceMax"    ? *Number::apply("max", {total, all[i]})
              : which == "ReduceMin"  ? *Number::apply("min", {total, all[i]})
              : which == "ReduceProd" ? total * all[i]
                                      : total + all[i];
    if (which == "ReduceSum")
      total *= copies;
    if (which == "ReduceMean")
      total /= static_cast<double>(all.size());
    if (!total.isValid())
      return op.error("makes a number that no step can know: it is too long a formula");
    numbers.push_back(std::move(total));
  }
  if (which == "ReduceMean" && !isFloat(x.type))
    return op.error("is a mean of integers, which is not supported");
  return op.result(simplified(knownOver(x.type, std::move(numbers), kept)));
}

FailureOr<ImportedValue> zorse::onnx_import::joinedKnown(OpContext &op,
                                                         const std::vector<ImportedValue> &parts,
                                                         int64_t axis,
                                                         const std::vector<int64_t> &shape) {
  std::vector<std::vector<Number>> numbers;
  std::vector<size_t> runs;
  View like = parts[0].view;
  like.dims[axis] = shape[axis] == 1 ? FactorList{} : FactorList{Factor{shape[axis], 1, false}};
  size_t outer = 1, total = 0;
  for (int64_t i = 0; i < axis; ++i)
    for (const Factor &factor : like.dims[i])
      outer *= factor.sample ? 1 : static_cast<size_t>(factor.size);
  for (const ImportedValue &part : parts) {
    auto known = asKnown(op, part);
    if (failed(known))
      return failure();
    if (known->view.elements() > kMaxNumbers * std::max<int64_t>(op.state.rows, 1))
      return op.error("joins more than " + Twine(kMaxNumbers) +
                      " numbers that are known only with the batch");
    numbers.push_back(numbersOf(*known));
    runs.push_back(numbers.back().size() / outer);
    total += numbers.back().size();
  }
  std::vector<Number> joined;
  joined.reserve(total);
  for (size_t o = 0; o < outer; ++o)
    for (size_t k = 0; k < parts.size(); ++k)
      for (size_t i = 0; i < runs[k]; ++i)
        joined.push_back(numbers[k][o * runs[k] + i]);
  return simplified(knownOver(parts[0].type, std::move(joined), like));
}

FailureOr<ImportedValue> zorse::onnx_import::pickedFromKnown(OpContext &op, const ImportedValue &x,
                                                             int64_t axis,
                                                             const std::vector<int64_t> &picked) {
  std::vector<ImportedValue> parts;
  for (int64_t id : picked) {
    ImportedValue part = x;
    if (failed(take(op, part, axis, id, 1, 1)))
      return failure();
    parts.push_back(std::move(part));
  }
  if (parts.size() == 1)
    return parts[0];
  std::vector<int64_t> shape = x.shape();
  shape[axis] = static_cast<int64_t>(picked.size());
  return joinedKnown(op, parts, axis, shape);
}

// --- operators that accept Known values

LogicalResult zorse::onnx_import::applyWith(OpContext &op, std::vector<ImportedValue> operands) {
  GraphNode other = op.node;
  const size_t first = op.state.values.size();
  for (size_t i = 0; i < operands.size(); ++i) {
    std::string name = op.node.inputs[i] < 0 ? std::string()
                                             : op.state.graph.valueNames[op.node.inputs[i]];
    other.inputs[i] = operands[i] ? static_cast<int>(op.state.values.size()) : -1;
    if (!operands[i])
      continue;
    op.state.values.push_back(std::move(operands[i]));
    op.state.graph.valueNames.push_back(std::move(name));
  }
  OpContext inner(op.state, other);
  LogicalResult status = applyOperator(inner);
  op.state.values.resize(first);
  op.state.graph.valueNames.resize(first);
  return status;
}

/// Whether an operator is elementwise, so that its numbers are folded.
static bool foldsNumbers(StringRef op) {
  static const llvm::StringSet<> others{
      "Add", "Sub", "Mul",  "Div",  "Mod", "Sum",  "Greater",  "GreaterOrEqual", "And",       "Or",
      "Xor", "Not", "Clip", "Cast", "Neg", "Relu", "CastLike", "Sign",           "Reciprocal"};
  return functionOf(op) || others.contains(op);
}

/// Whether an operator only moves or reduces the elements of operand 0.
static bool operatorMovesElements(StringRef op) {
  static const llvm::StringSet<> known{"Identity",
                                       "Reshape",
                                       "Flatten",
                                       "Transpose",
                                       "Squeeze",
                                       "Unsqueeze",
                                       "Expand",
                                       "Tile",
                                       "Slice",
                                       "Split",
                                       "Gather",
                                       "SplitToSequence",
                                       "SequenceConstruct",
                                       "Shape",
                                       "Size",
                                       "Concat",
                                       "ReduceSum",
                                       "ReduceMean",
                                       "ReduceMax",
                                       "ReduceMin",
                                       "ReduceProd",
                                       "ReduceL1",
                                       "ReduceL2",
                                       "ReduceSumSquare"};
  return known.contains(op);
}

/// Whether operand `index` contains one or more lengths.
static bool isLength(StringRef op, size_t index) {
  if (op == "Range" || op == "ConstantOfShape")
    return true;
  if (op == "Slice")
    return index == 1 || index == 2;
  if (op == "Resize")
    return index == 3;
  return index == 1 && (op == "Reshape" || op == "Expand" || op == "Tile" || op == "Split");
}

std::optional<LogicalResult> zorse::onnx_import::applyToKnown(OpContext &op) {
  bool anyGraph = false, anyLoss = false, numbersSamples = false;
  int64_t known = -1;
  for (size_t i = 0; i < op.node.inputs.size(); ++i) {
    const ImportedValue &operand = op.operand(i);
    anyGraph |= operand.isTensor();
    numbersSamples |= operand.sampleStep() != 0;
    anyLoss |= operand.isLoss();
    const bool moves = operatorMovesElements(op.node.op) &&
                       (i == 0 || op.node.op == "Concat" || op.node.op == "SequenceConstruct");
    const bool picked = op.node.op == "Gather" && op.operand(1).isTensor(); // by data
    if (operand.isKnown() && known < 0 && !isLength(op.node.op, i) && (!moves || picked))
      known = static_cast<int64_t>(i);
  }
  if (known < 0 || anyLoss)
    return std::nullopt;
  const ImportedValue &number = op.operand(static_cast<size_t>(known));
  const bool elementwise = foldsNumbers(op.node.op);
  if (!elementwise && !isFloat(number.type))
    return op.error("computes with a number that is known only with the batch (" +
                    (number.numbers().empty() ? std::string("?") : number.numbers()[0].print()) +
                    "; B: the samples of a step), which is supported in elementwise operators, "
                    "sums and lengths");
  if (elementwise && numbersSamples) // the numbers become a value of the graph first
    return std::nullopt;
  if (elementwise && !anyGraph)
    return foldNumbers(op);
  if (op.node.op == "CastLike") // only the type is used
    return op.result(castTo(op.state, op.operand(0), op.operand(1).type));
  const bool uniform = uniformNumber(op.state, number).has_value() && isFloat(number.type);
  if (uniform && op.node.inputs.size() == 2 &&
      (op.node.op == "Mul" || (op.node.op == "Div" && known == 1)))
    return std::nullopt; // a scale
  if (uniform && op.node.op == "Div") {
    Decomposition make(op);
    ImportedValue graph = op.operand(1);
    return make.result(make("Mul", {make("Div", {make.number(1, graph), graph}), number}));
  }
  std::vector<ImportedValue> operands = op.operands();
  for (ImportedValue &operand : operands)
    if (operand.isKnown()) {
      auto value = asTensor(op, operand);
      if (failed(value))
        return LogicalResult(failure());
      operand = std::move(*value);
    }
  return applyWith(op, std::move(operands));
}
