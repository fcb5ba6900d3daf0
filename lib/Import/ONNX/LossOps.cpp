// Imports losses. A loss is a sum of terms factor * (sum over samples of a numerator); the factors
// are known before the step.
#include "Decomposition.h"
#include "Known.h"
#include "Lengths.h"
#include "LoopNest.h"
#include "Losses.h"
#include "Parts.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "llvm/ADT/StringMap.h"

#include <algorithm>
#include <cmath>

using namespace mlir;
using namespace zorse;
using namespace zorse::onnx_import;

LogicalResult zorse::onnx_import::notAffine(OpContext &op, const Twine &what) {
  return op.error(what + " a sum over samples that is not known before the step (it depends on "
                         "weights, or on other such sums): it mixes samples. "
                         "The loss must be a sum of terms factor * sum over "
                         "samples, with factors that follow from the number of samples and from "
                         "sums of inputs alone, and of scalars of parameters; "
                         "write it as a mean over samples of a loss of each");
}

void zorse::onnx_import::addNumber(ImportState &state, const Number &number,
                                   std::vector<LossSummand> &terms) {
  for (const Number::Part &part : number.parts()) {
    LossSummand summand;
    summand.elementsPerRow = 1;
    summand.factor = part.factor;
    const bool isSum = part.count >= 0 && state.counts[part.count].reduce == ReduceKind::Sum;
    summand.numerator = isSum ? state.counts[part.count].numerator
                              : splat(state, 1,
                                      RankedTensorType::get({ShapedType::kDynamic},
                                                            elementType(state, ElementKind::F32)));
    if (!isSum)
      summand.factor = (part.count < 0 ? part.factor : part.factor * Number::count(part.count)) /
                       samplesPerRow(state);
    terms.push_back(std::move(summand));
  }
}

/// Adds a scalar without samples, such as an L2 penalty of parameters, as a term of the loss: the
/// mean of equal values over the samples. Losses belong to the last unit, which therefore reads
/// every parameter of the penalty.
static LogicalResult addPenalty(OpContext &op, const ImportedValue &scalar, double sign,
                                std::vector<LossSummand> &terms) {
  if (auto number = uniformNumber(op.state, scalar))
    return addNumber(op.state, *number * Number(sign), terms), success();
  warn(op.state, "the loss has a term of parameters alone (node '" + op.node.name +
                     "'): the last unit reads all of these, wherever they are used; --weight-decay "
                     "of the optimizer costs nothing");
  LossSummand summand;
  summand.elementsPerRow = 1;
  summand.factor = Number(sign) / samplesPerRow(op.state); // the mean over rows with equal values
  auto type =
      RankedTensorType::get({ShapedType::kDynamic}, elementType(op.state, ElementKind::F32));
  ImportedValue plain = scalar;
  summand.factor *= plain.takeScale();
  summand.numerator = broadcastTo(op.state, reshapeTo(op.state, materialise(op.state, plain), {}),
                                  {}, type.getShape());
  terms.push_back(summand);
  return success();
}

LogicalResult zorse::onnx_import::addSummand(OpContext &op, const ImportedValue &value, double sign,
                                             std::vector<LossSummand> &summands) {
  if (value.isLoss()) {
    for (LossSummand summand : value.loss().summands) {
      summand.factor *= Number(sign);
      summands.push_back(std::move(summand));
    }
    return success();
  }
  auto number = value.view.elements() == 1 ? uniformNumber(op.state, value) : std::nullopt;
  if (number && number->is(0))
    return success();
  if (value.isTensor() && isBatched(value))
    return mixes(op, "adds a sum over samples to values of samples");
  if (!number &&
      (!value.isTensor() || value.view.elements() != 1 || isBatched(value) || !isFloat(value.type)))
    return op.error("combines a sum over samples with a tensor; the loss must be a scalar");
  return addPenalty(op, value, sign, summands);
}

static LogicalResult sumOfLosses(OpContext &op, const std::string &which, const ImportedValue &a,
                                 const ImportedValue &b) {
  Loss sum;
  if (failed(addSummand(op, a, 1, sum.summands)) ||
      failed(addSummand(op, b, which == "Sub" ? -1 : 1, sum.summands)))
    return failure();
  return op.result({a.isLoss() ? a.type : b.type, {}, std::move(sum)});
}

/// Replaces a constant factor of a loss in a file for a fixed number of samples N. In such a file
/// constants stand for N. If a plain sum is divided by N, or by N times the elements of a sample,
/// the divisor is assumed to depend on the number of samples. Other multiples of N are ambiguous.
static FailureOr<Number> factorInFile(OpContext &op, const Number &number, bool divides,
                                      const LossSummand &summand) {
  auto constant = number.constant();
  Number plain = divides ? Number(1.0) / number : number;
  if (!constant || !op.state.rowsBaked || *constant == 0)
    return plain;
  const auto samples =
      static_cast<double>(op.state.rows * std::max<int64_t>(op.state.options.groupRows, 1));
  double divisor = divides ? *constant : 1 / *constant;
  if (std::fabs(divisor - std::round(divisor)) > 1e-6 * std::fabs(divisor))
    return plain;
  divisor = std::round(std::fabs(divisor));
  const double elements = samples * static_cast<double>(summand.elementsPerRow);
  if (summand.factor.isConstant() && (divisor == elements || divisor == samples) && *constant > 0) {
    op.state.notes.push_back(
        op.node.describe() + ": " + number.print() + " is assumed to be " +
        (divisor == elements ? "the number of elements of all samples" : "the number of samples") +
        "; the file fixes " + Number(samples).print() +
        " samples. Export with a symbolic batch to make it explicit");
    return Number(samples) / (Number(divisor) * Number::samples());
  }
  if (samples > 1 && std::fmod(divisor, samples) == 0 && !summand.factor.isConstant())
    op.state.notes.push_back(
        op.node.describe() + ": " + number.print() +
        " is assumed to be a constant, although it could follow from the " +
        Number(samples).print() +
        " samples that the file fixes. Export with a symbolic batch to make it explicit");
  else if (samples > 1 && std::fmod(divisor, samples) == 0)
    return op.error(Twine(divides ? "divides" : "multiplies") + " a sum over samples by " +
                    number.print() + ", which may stand for the " + Number(samples).print() +
                    " samples that the file fixes, or for a constant. Export with a symbolic batch "
                    "to make it explicit");
  return plain;
}

LogicalResult zorse::onnx_import::scaledLoss(OpContext &op, ImportedValue loss,
                                             const ImportedValue &other, bool divides) {
  if (auto number = other.view.elements() == 1 ? uniformNumber(op.state, other) : std::nullopt) {
    if (divides && number->is(0))
      return op.error("divides a sum over samples by zero");
    for (LossSummand &summand : loss.loss().summands) {
      auto factor = factorInFile(op, *number, divides, summand);
      if (failed(factor))
        return failure();
      summand.factor *= *factor;
      if (!summand.factor.isValid())
        return op.error("makes a factor that is too long a formula");
    }
    return op.result(std::move(loss));
  }
  if (other.isLoss())
    return notAffine(op, divides ? "divides by" : "multiplies");
  if (!other.isTensor() || other.view.elements() != 1 || isBatched(other) || !isFloat(other.type))
    return op.error("combines a sum over samples with a tensor; the loss must be a scalar");
  // A scalar of parameters is multiplied into the numerator. Its gradient is then a sum over
  // samples.
  ImportedValue plain = other;
  const Number scale = plain.takeScale();
  Value scalar = reshapeTo(op.state, materialise(op.state, plain), {});
  for (LossSummand &summand : loss.loss().summands) {
    Value all = broadcastTo(op.state, scalar, {},
                            cast<RankedTensorType>(summand.numerator.getType()).getShape());
    summand.factor = divides ? summand.factor / scale : summand.factor * scale;
    summand.numerator = divides ? create<arith::DivFOp>(op.state, summand.numerator, all)
                                : create<arith::MulFOp>(op.state, summand.numerator, all);
  }
  return op.result(std::move(loss));
}

LogicalResult zorse::onnx_import::lossBinary(OpContext &op, const std::string &which,
                                             const ImportedValue &a, const ImportedValue &b) {
  const bool lossA = a.isLoss(), lossB = b.isLoss();
  if (which == "Add" || which == "Sub")
    return sumOfLosses(op, which, a, b);
  if (which == "Mul" && !(lossA && lossB))
    return scaledLoss(op, lossA ? a : b, lossA ? b : a, /*divides=*/false);
  if (which == "Div" && lossA)
    return scaledLoss(op, a, b, /*divides=*/true);
  return notAffine(op, which == "Mul"   ? "multiplies"
                       : which == "Div" ? "divides by"
                                        : "takes a function of");
}

/// 1 / the divisor of a mean cross-entropy: the number of labels, or the sum of the weights of
/// labels that are not ignored.
static FailureOr<Number> meanFactor(OpContext &op, Value index, Value weight,
                                    std::optional<int64_t> ignore, int64_t elementsPerRow) {
  if (!ignore && !weight)
    return Number(1.0) / (samplesPerRow(op.state) * Number(static_cast<double>(elementsPerRow)));
  auto indexType = cast<RankedTensorType>(index.getType());
  auto floatType =
      RankedTensorType::get(indexType.getShape(), elementType(op.state, ElementKind::F32));
  Value counted;
  Value keep;
  if (ignore)
    keep = create<arith::CmpIOp>(op.state, arith::CmpIPredicate::ne, index,
                                 splat(op.state, static_cast<double>(*ignore), indexType));
  if (weight) {
    Value safe = ignore
                     ? create<arith::SelectOp>(op.state, keep, index, splat(op.state, 0, indexType))
                     : index;
    counted = create<GatherOp>(op.state, weight, safe);
    if (ignore)
      counted = create<arith::SelectOp>(op.state, keep, counted, splat(op.state, 0, floatType));
  } else {
    counted = create<arith::UIToFPOp>(op.state, floatType, keep);
  }
  Value perSample = sumPerSample(op.state, counted);
  if (!op.state.isFromInputs(perSample))
    return op.error("divides by the sum of class weights that are parameters; freeze them into "
                    "constants, or give no weights");
  return Number(1.0) / countOf(op.state, perSample, ReduceKind::Sum);
}

/// Cross-entropy of logits [N, C, d...] with labels [N, d...].
static FailureOr<ImportedValue> crossEntropy(OpContext &op, ImportedValue logits,
                                             ImportedValue labels, ImportedValue weights,
                                             std::optional<int64_t> ignore,
                                             const std::string &reduction) {
  if (!logits.isTensor() || !isFloat(logits.type) || logits.rank() < 2 || !labels.isArray() ||
      isFloat(labels.type))
    return op.error("expects float logits [N, C, ...] and integer labels [N, ...]");
  if (labels.isConstant())
    return op.error("its labels are constants; make them an input of the graph");
  if (logits.view.sampleAxis() == 1)
    return op.error("has its classes on the sample axis");
  int64_t classes = logits.view.size(1);
  bool isLogp = op.node.op == "NegativeLogLikelihoodLoss";
  std::vector<ImportedValue> operands{logits, labels};
  operands[0].view.dims.erase(operands[0].view.dims.begin() + 1);
  if (operands[0].shape() != operands[1].shape())
    return op.error("expects labels of the shape of the logits without their classes");
  auto nest = LoopNest::of(op, std::move(operands));
  if (failed(nest))
    return failure();
  if (!nest->hasSamples())
    return op.error("its logits carry no samples");
  if (nest->isCopied(0))
    return crossEntropy(op, copied(op.state, logits), labels, weights, ignore, reduction);
  Value data = nest->emit(op.state, 0, logits.view.dims[1]), index = nest->emit(op.state, 1);
  if (isLogp) {
    auto logp = data.getDefiningOp<LogSoftmaxOp>();
    if (!logp)
      return op.error("expects the result of LogSoftmax as its operand");
    data = logp.getX();
  }
  Value weight;
  if (weights) {
    FactorList list;
    for (const FactorList &own : weights.view.dims)
      list.insert(list.end(), own.begin(), own.end());
    if (weights.view.elements() != classes || isBatched(weights))
      return op.error("expects one weight per class");
    weight = materialise(op.state, weights, {list}, false);
  }
  Value loss = merge(op.state, CrossEntropyOp::create(op.state.builder, op.state.location, data,
                                                      index, weight, ignore));
  op.state.losses.push_back({index, data, ignore, classes});
  if (reduction == "none")
    return nest->result(loss, logits.type);

  LossSummand summand;
  auto lossType = cast<RankedTensorType>(loss.getType());
  summand.elementsPerRow = elementsPerRow(lossType);
  summand.numerator = sumPerSample(op.state, loss);
  if (reduction == "mean") {
    auto factor = meanFactor(op, index, weight, ignore, summand.elementsPerRow);
    if (failed(factor))
      return failure();
    summand.factor = *factor;
  }
  return ImportedValue{logits.type, {}, Loss{{std::move(summand)}}};
}

static LogicalResult importCrossEntropy(OpContext &op) {
  std::optional<int64_t> ignore;
  if (const onnx::Attribute *given = op.attribute("ignore_index"))
    ignore = given->i();
  if (op.isUsed(1)) { // second result: log-probabilities
    Decomposition make(op);
    ImportedValue all = make("LogSoftmax", {op.operand(0)}, {{"axis", int64_t(1)}});
    if (make.hasFailed())
      return failure();
    op.set(1, all);
  }
  return op.result(
      crossEntropy(op, op.operand(0), op.operand(1), op.operand(2), ignore, op.text("reduction")));
}

// The loss that the options request: cross-entropy of logits [rows, positions, classes] with labels
// [rows, positions].
std::optional<ImportedValue> zorse::onnx_import::addedLoss(ImportState &state,
                                                           LogicalResult &status) {
  status = failure();
  std::string name = state.options.logits.empty() ? state.model.model().graph().output(0).name()
                                                  : state.options.logits;
  int number = -1;
  for (size_t i = 0; i < state.graph.valueNames.size(); ++i)
    if (state.graph.valueNames[i] == name)
      number = static_cast<int>(i);
  ImportedValue logits = number >= 0 ? state.values[number] : ImportedValue{};
  if (!logits.isTensor() || !isBatched(logits) || !isFloat(logits.type) || logits.rank() < 2) {
    (void)error(state, "logits '" + name + "' are not float activations of at least 2 dimensions");
    return std::nullopt;
  }
  std::string labelName = state.options.labels.empty() ? "labels" : state.options.labels;
  std::vector<int64_t> shape = logits.shape();
  shape.pop_back();
  ImportedValue labels;
  auto known = state.inputArguments.find(labelName);
  if (known != state.inputArguments.end()) {
    for (auto &[value, info] : state.graph.inputs)
      if (info->name() == labelName)
        labels = state.values[value];
  } else if (state.options.groupRows > 0) {
    (void)error(state, "--loss cannot add the input '" + labelName +
                           "' to a model with --group-rows: export a module that has "
                           "this input and returns the loss, or train "
                           "with the running statistics, without --group-rows");
    return std::nullopt;
  } else {
    // Add an input for the labels, before the arguments of parameters.
    SmallVector<int64_t> type{ShapedType::kDynamic};
    type.append(shape.begin() + 1, shape.end());
    unsigned position = static_cast<unsigned>(state.inputNames.size());
    Value argument = state.block->insertArgument(
        position, RankedTensorType::get(type, state.builder.getI64Type()),
        NameLoc::get(state.builder.getStringAttr(labelName)));
    std::map<unsigned, size_t> moved;
    for (auto &[argumentNumber, index] : state.weightOfArgument)
      moved[argumentNumber + 1] = index;
    state.weightOfArgument = std::move(moved);
    state.inputArguments[labelName] = position;
    state.inputNames.push_back(labelName);
    labels = wrap(argument, ElementKind::I64, shape);
  }
  state.notes.push_back(
      "the loss is added: the mean cross-entropy of '" + name + "'" +
      (state.options.logits.empty() ? " (the first output; --logits=NAME says another)" : "") +
      " at position i with '" + labelName + "'" +
      (state.options.labels.empty() ? " (--labels=NAME says another)" : "") + " at position " +
      (state.options.shiftLabels ? "i + 1" : "i") + "; labels of " +
      std::to_string(state.options.ignoreIndex) + " count for nothing (--ignore-index)");
  GraphNode node;
  node.op = "SoftmaxCrossEntropyLoss";
  node.name = "loss";
  OpContext op(state, node);
  state.location = NameLoc::get(state.builder.getStringAttr("loss"));
  if (state.options.shiftLabels) {
    int64_t axis = logits.rank() - 2, length = logits.view.size(axis);
    if (axis < 1 || length < 2) {
      (void)error(state,
                  "the labels cannot be shifted: logits '" + name + "' have no axis of positions");
      return std::nullopt;
    }
    if (failed(take(op, logits, axis, 0, 1, length - 1)) ||
        failed(take(op, labels, labels.rank() - 1, 1, 1, labels.view.size(labels.rank() - 1) - 1)))
      return std::nullopt;
  }
  // The operator expects the classes in dimension 1.
  FactorList classes = logits.view.dims.back();
  logits.view.dims.pop_back();
  logits.view.dims.insert(logits.view.dims.begin() + 1, classes);
  auto loss = crossEntropy(op, logits, labels, ImportedValue{}, state.options.ignoreIndex, "mean");
  if (failed(loss))
    return std::nullopt;
  status = success();
  return *loss;
}

void zorse::onnx_import::registerLossOps(OperatorRegistry &registry) {
  registry.add({
      {{"SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss"},
       2,
       3,
       {integer("ignore_index"), only(text("reduction", "mean"), {"mean", "sum", "none"})},
       importCrossEntropy},
  });
}
