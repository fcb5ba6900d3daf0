// The loss as a sum of terms factor * (sum over samples of a numerator), whose factors are known before the step.
#include "Composition.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "llvm/ADT/StringMap.h"

#include <algorithm>
#include <cmath>

using namespace mlir;
using namespace zorse;
using namespace zorse::onnx_import;

LogicalResult Importer::notAffine(const GraphNode &node, const Twine &what) {
  return error(node, what + " a sum over samples that is not known before the step (it depends on weights, or on other such sums): it mixes samples. "
                            "The loss must be a sum of terms factor * sum over "
                            "samples, whose factors follow from the number of samples and from sums of inputs alone, and of scalars of parameters; "
                            "write it as a mean over samples of a loss of each");
}

void Importer::addNumber(const Number &number, std::vector<LossSummand> &terms) {
  for (const Number::Part &part : number.parts()) {
    LossSummand summand;
    summand.elementsPerRow = 1;
    summand.factor = part.factor;
    const bool isSum = part.count >= 0 && counts[part.count].reduce == ReduceKind::Sum;
    summand.numerator = isSum ? counts[part.count].numerator : splat(1, RankedTensorType::get({ShapedType::kDynamic}, elementType(ElementKind::F32)));
    if (!isSum)
      summand.factor = (part.count < 0 ? part.factor : part.factor * Number::count(part.count)) / samplesPerRow();
    terms.push_back(std::move(summand));
  }
}

LogicalResult Importer::addPenalty(const GraphNode &node, const Val &scalar, double sign, std::vector<LossSummand> &terms) {
  if (auto number = uniformNumber(scalar))
    return addNumber(*number * Number(sign), terms), success();
  warn("the loss has a term of parameters alone (node '" + node.name +
       "'): the last unit reads all of these, wherever they are used; --weight-decay of the optimizer costs nothing");
  LossSummand summand;
  summand.elementsPerRow = 1;
  summand.factor = Number(sign) / samplesPerRow(); // the mean over rows that all have it
  auto type = RankedTensorType::get({ShapedType::kDynamic}, elementType(ElementKind::F32));
  summand.factor *= scalar.scale;
  Val plain = scalar;
  plain.scale = 1.0;
  summand.numerator = broadcastTo(reshapeTo(materialise(plain), {}), {}, type.getShape());
  terms.push_back(summand);
  return success();
}

LogicalResult Importer::addSummand(const GraphNode &node, const Val &value, double sign, std::vector<LossSummand> &summands) {
  if (value.kind == Val::Kind::Loss) {
    for (LossSummand summand : value.summands) {
      summand.factor *= Number(sign);
      summands.push_back(std::move(summand));
    }
    return success();
  }
  auto number = value.view.elements() == 1 ? uniformNumber(value) : std::nullopt;
  if (number && number->is(0))
    return success();
  if (value.isGraph() && isSampled(value))
    return mixes(node, "adds a sum over samples to values of samples");
  if (!number && (!value.isGraph() || value.view.elements() != 1 || isSampled(value) || !isFloat(value.type)))
    return error(node, "combines a sum over samples with a tensor; the loss must be a scalar");
  return addPenalty(node, value, sign, summands);
}

LogicalResult Importer::sumOfLosses(const GraphNode &node, const std::string &op, const Val &a, const Val &b) {
  Val value;
  value.kind = Val::Kind::Loss;
  value.type = a.kind == Val::Kind::Loss ? a.type : b.type;
  if (failed(addSummand(node, a, 1, value.summands)) || failed(addSummand(node, b, op == "Sub" ? -1 : 1, value.summands)))
    return failure();
  return out(node, 0, std::move(value)), success();
}

// A file for one number of samples N holds numbers in their place. N, and N times the elements of a sample, stand for samples where a plain sum is
// divided by them; what else N divides may as well.
FailureOr<Number> Importer::factorInFile(const GraphNode &node, const Number &number, bool divides, const LossSummand &summand) {
  auto constant = number.constant();
  Number plain = divides ? Number(1.0) / number : number;
  if (!constant || !rowsBaked || *constant == 0)
    return plain;
  const auto samples = static_cast<double>(rows * std::max<int64_t>(options.batchNormRows, 1));
  double divisor = divides ? *constant : 1 / *constant;
  if (std::fabs(divisor - std::round(divisor)) > 1e-6 * std::fabs(divisor))
    return plain;
  divisor = std::round(std::fabs(divisor));
  const double elements = samples * static_cast<double>(summand.elementsPerRow);
  if (summand.factor.isConstant() && (divisor == elements || divisor == samples) && *constant > 0) {
    notes.push_back(node.describe() + ": " + number.print() + " is taken for " +
                    (divisor == elements ? "the elements of all samples" : "the samples") + ", of which the file fixes " + Number(samples).print() +
                    "; an export with a symbolic batch says what it is");
    return Number(samples) / (Number(divisor) * Number::samples());
  }
  if (samples > 1 && std::fmod(divisor, samples) == 0 && !summand.factor.isConstant())
    notes.push_back(node.describe() + ": " + number.print() + " is taken for a number, though it could follow from the " + Number(samples).print() +
                    " samples that the file fixes; an export with a symbolic batch says what it is");
  else if (samples > 1 && std::fmod(divisor, samples) == 0)
    return error(node, Twine(divides ? "divides" : "multiplies") + " a sum over samples by " + number.print() + ", which may stand for the " +
                           Number(samples).print() + " samples that the file fixes, or for a number; export with a symbolic batch, which says which");
  return plain;
}

LogicalResult Importer::scaledLoss(const GraphNode &node, Val loss, const Val &other, bool divides) {
  if (auto number = other.view.elements() == 1 ? uniformNumber(other) : std::nullopt) {
    if (divides && number->is(0))
      return error(node, "divides a sum over samples by zero");
    for (LossSummand &summand : loss.summands) {
      auto factor = factorInFile(node, *number, divides, summand);
      if (failed(factor))
        return failure();
      summand.factor *= *factor;
      if (!summand.factor.isValid())
        return error(node, "makes a factor that is too long a formula");
    }
    return out(node, 0, std::move(loss)), success();
  }
  if (other.kind == Val::Kind::Loss)
    return notAffine(node, divides ? "divides by" : "multiplies");
  if (!other.isGraph() || other.view.elements() != 1 || isSampled(other) || !isFloat(other.type))
    return error(node, "combines a sum over samples with a tensor; the loss must be a scalar");
  // A scalar of parameters goes inside of the sum, so that its gradient is a sum over samples.
  Val plain = other;
  plain.scale = 1.0;
  Value scalar = reshapeTo(materialise(plain), {});
  for (LossSummand &summand : loss.summands) {
    Value all = broadcastTo(scalar, {}, cast<RankedTensorType>(summand.numerator.getType()).getShape());
    summand.factor = divides ? summand.factor / other.scale : summand.factor * other.scale;
    summand.numerator = divides ? create<arith::DivFOp>(summand.numerator, all) : create<arith::MulFOp>(summand.numerator, all);
  }
  return out(node, 0, std::move(loss)), success();
}

LogicalResult Importer::lossBinary(const GraphNode &node, const std::string &op, const Val &a, const Val &b) {
  const bool lossA = a.kind == Val::Kind::Loss, lossB = b.kind == Val::Kind::Loss;
  if (op == "Add" || op == "Sub")
    return sumOfLosses(node, op, a, b);
  if (op == "Mul" && !(lossA && lossB))
    return scaledLoss(node, lossA ? a : b, lossA ? b : a, /*divides=*/false);
  if (op == "Div" && lossA)
    return scaledLoss(node, a, b, /*divides=*/true);
  return notAffine(node, op == "Mul" ? "multiplies" : op == "Div" ? "divides by" : "takes a function of");
}

FailureOr<Number> Importer::meanFactor(const GraphNode &node, Value index, Value weight, std::optional<int64_t> ignore, int64_t elementsPerRow) {
  if (!ignore && !weight)
    return Number(1.0) / (samplesPerRow() * Number(static_cast<double>(elementsPerRow)));
  auto indexType = cast<RankedTensorType>(index.getType());
  auto floatType = RankedTensorType::get(indexType.getShape(), elementType(ElementKind::F32));
  Value counted;
  Value keep;
  if (ignore)
    keep = create<arith::CmpIOp>(arith::CmpIPredicate::ne, index, splat(static_cast<double>(*ignore), indexType));
  if (weight) {
    Value safe = ignore ? create<arith::SelectOp>(keep, index, splat(0, indexType)) : index;
    counted = create<GatherOp>(weight, safe);
    if (ignore)
      counted = create<arith::SelectOp>(keep, counted, splat(0, floatType));
  } else {
    counted = create<arith::UIToFPOp>(floatType, keep);
  }
  Value perSample = sumPerSample(counted);
  if (!isFromInputs(perSample))
    return error(node, "divides by the sum of class weights that are parameters; freeze them into constants, or give no weights");
  return Number(1.0) / countOf(perSample, ReduceKind::Sum);
}

// logits [N, C, d...], labels [N, d...].
FailureOr<Val> Importer::crossEntropy(const GraphNode &node, Val logits, Val labels, Val weights, std::optional<int64_t> ignore,
                                      const std::string &reduction) {
  if (!logits.isGraph() || !isFloat(logits.type) || logits.rank() < 2 || (!labels.isGraph() && !labels.isConstant()) || isFloat(labels.type))
    return error(node, "expects float logits [N, C, ...] and integer labels [N, ...]");
  if (labels.isConstant())
    return error(node, "its labels are constants; make them an input of the graph");
  if (logits.view.sampleAxis() == 1)
    return error(node, "has its classes on the sample axis");
  int64_t classes = logits.view.size(1);
  FactorList classFactors = logits.view.dims[1];
  bool isLogp = node.op == "NegativeLogLikelihoodLoss";
  std::vector<Val> operands{logits, labels};
  operands[0].view.dims.erase(operands[0].view.dims.begin() + 1);
  if (operands[0].shape() != operands[1].shape())
    return error(node, "expects labels of the shape of the logits without their classes");
  std::vector<Axis> axes;
  std::vector<int64_t> shape;
  if (failed(align(node, operands, axes, shape)))
    return failure();
  orderAxes(operands, axes);
  Loop loop = makeLoop(axes);
  if (!loop.sampled)
    return error(node, "its logits carry no samples");
  Groups groups;
  for (auto &group : loop.groups) {
    FactorList list;
    for (const Axis *axis : group)
      list.push_back(Factor{axis->size, axis->strides[0], false});
    coalesce(list);
    groups.push_back(list);
  }
  groups.push_back(classFactors);
  Value data = materialise(logits, groups, true), index = operandOf(labels, 1, loop);
  if (isLogp) {
    auto logp = data.getDefiningOp<LogSoftmaxOp>();
    if (!logp)
      return error(node, "expects the result of LogSoftmax as its operand");
    data = logp.getX();
  }
  Value weight;
  if (weights) {
    FactorList list;
    for (const FactorList &own : weights.view.dims)
      list.insert(list.end(), own.begin(), own.end());
    if (weights.view.elements() != classes || isSampled(weights))
      return error(node, "expects one weight per class");
    weight = materialise(weights, {list}, false);
  }
  Value loss = merge(CrossEntropyOp::create(builder, location, data, index, weight, ignore));
  losses.push_back({index, data, ignore, classes});
  if (reduction == "none")
    return resultOf(loss, logits.type, axes, loop, shape);

  Val result;
  result.kind = Val::Kind::Loss;
  result.type = logits.type;
  LossSummand summand;
  auto lossType = cast<RankedTensorType>(loss.getType());
  summand.elementsPerRow = elementsPerRow(lossType);
  summand.numerator = sumPerSample(loss);
  if (reduction == "mean") {
    auto factor = meanFactor(node, index, weight, ignore, summand.elementsPerRow);
    if (failed(factor))
      return failure();
    summand.factor = *factor;
  }
  result.summands.push_back(summand);
  return result;
}

LogicalResult Importer::onCrossEntropy(const GraphNode &node) {
  std::optional<int64_t> ignore;
  if (node.attributes.count("ignore_index"))
    ignore = intAttribute(node, "ignore_index", 0);
  if (isUsed(node, 1)) { // log-probabilities
    Composition make(*this, node);
    Val all = make("LogSoftmax", {in(node, 0)}, {{"axis", int64_t(1)}});
    if (make.hasFailed())
      return failure();
    out(node, 1, all);
  }
  auto value = crossEntropy(node, in(node, 0), in(node, 1), in(node, 2), ignore, stringAttribute(node, "reduction", "mean"));
  if (failed(value))
    return failure();
  return out(node, 0, std::move(*value)), success();
}

// The loss of the options: cross-entropy of logits [rows, positions, classes] with labels [rows, positions].
std::optional<Val> Importer::addedLoss(LogicalResult &status) {
  status = failure();
  std::string name = options.logits.empty() ? model.model().graph().output(0).name() : options.logits;
  int number = -1;
  for (size_t i = 0; i < graph.valueNames.size(); ++i)
    if (graph.valueNames[i] == name)
      number = static_cast<int>(i);
  Val logits = number >= 0 ? values[number] : Val{};
  if (!logits.isGraph() || !isSampled(logits) || !isFloat(logits.type) || logits.rank() < 2) {
    (void)error("logits '" + name + "' are not float activations of at least 2 dimensions");
    return std::nullopt;
  }
  std::string labelName = options.labels.empty() ? "labels" : options.labels;
  std::vector<int64_t> shape = logits.shape();
  shape.pop_back();
  Val labels;
  auto known = inputArguments.find(labelName);
  if (known != inputArguments.end()) {
    for (auto &[value, info] : graph.inputs)
      if (info->name() == labelName)
        labels = values[value];
  } else {
    // A new input; arguments of parameters that exist already come after the inputs anyway.
    SmallVector<int64_t> type{ShapedType::kDynamic};
    type.append(shape.begin() + 1, shape.end());
    unsigned position = static_cast<unsigned>(inputNames.size());
    Value argument =
        block->insertArgument(position, RankedTensorType::get(type, builder.getI64Type()), NameLoc::get(builder.getStringAttr(labelName)));
    std::map<unsigned, size_t> moved;
    for (auto &[argumentNumber, index] : weightOfArgument)
      moved[argumentNumber + 1] = index;
    weightOfArgument = std::move(moved);
    inputArguments[labelName] = position;
    inputNames.push_back(labelName);
    labels = wrap(argument, ElementKind::I64, shape);
  }
  notes.push_back("the loss is added: the mean cross-entropy of '" + name + "'" +
                  (options.logits.empty() ? " (the first output; --logits=NAME says another)" : "") + " at position i with '" + labelName + "'" +
                  (options.labels.empty() ? " (--labels=NAME says another)" : "") + " at position " + (options.shiftLabels ? "i + 1" : "i") +
                  "; labels of " + std::to_string(options.ignoreIndex) + " count for nothing (--ignore-index)");
  GraphNode node;
  node.op = "SoftmaxCrossEntropyLoss";
  node.name = "loss";
  location = NameLoc::get(builder.getStringAttr("loss"));
  if (options.shiftLabels) {
    int64_t axis = logits.rank() - 2, length = logits.view.size(axis);
    if (axis < 1 || length < 2) {
      (void)error("the labels cannot be shifted: logits '" + name + "' have no axis of positions");
      return std::nullopt;
    }
    if (failed(take(node, logits, axis, 0, 1, length - 1)) ||
        failed(take(node, labels, labels.rank() - 1, 1, 1, labels.view.size(labels.rank() - 1) - 1)))
      return std::nullopt;
  }
  // Classes second, as the operator wants them.
  FactorList classes = logits.view.dims.back();
  logits.view.dims.pop_back();
  logits.view.dims.insert(logits.view.dims.begin() + 1, classes);
  auto loss = crossEntropy(node, logits, labels, Val{}, options.ignoreIndex, "mean");
  if (failed(loss))
    return std::nullopt;
  status = success();
  return *loss;
}

void Importer::addLossOps(OperatorTable &table) {
  table.add({"SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss"}, 2, 3, "ignore_index:i reduction:s=mean|sum|none", &Importer::onCrossEntropy);
}
