// The loss as a sum of terms c * (sum over samples of a) / D, and the table of handlers.
#include "Composition.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "llvm/ADT/StringMap.h"

#include <algorithm>
#include <cmath>

using namespace mlir;
using namespace zorse;
using namespace zorse::onnx_import;

LogicalResult Importer::addPenalty(const GraphNode &node, const Val &scalar, double sign, std::vector<LossSummand> &terms) {
  if (!scalar.isConstant())
    warn("the loss has a term of parameters alone (node '" + node.name +
         "'): the last unit reads all of these, wherever they are used; --weight-decay of the optimizer costs nothing");
  const Val ones = wrap(splat(1, RankedTensorType::get({ShapedType::kDynamic}, elementType(ElementKind::F32))), ElementKind::F32, {rows});
  Composition make(*this, node);
  const Val mean = make("ReduceMean", {make("Mul", {ones, make.reshape(scalar, {1})})}, {{"keepdims", int64_t(0)}});
  if (make.hasFailed())
    return failure();
  for (LossSummand summand : mean.summands) {
    summand.coefficient *= sign;
    terms.push_back(summand);
  }
  return success();
}

LogicalResult Importer::lossBinary(const GraphNode &node, const std::string &op, const Val &a, const Val &b) {
  bool lossA = a.kind == Val::Kind::Loss, lossB = b.kind == Val::Kind::Loss;
  auto refuse = [&]() {
    return error(node, "combines sums over samples in a way that is not a sum of terms c * sum(a) / D (D: a constant or a count from inputs alone)");
  };
  if (lossA && lossB) {
    Val value = a;
    if (op == "Add" || op == "Sub") {
      for (LossSummand summand : b.summands) {
        summand.coefficient *= op == "Sub" ? -1 : 1;
        value.summands.push_back(summand);
      }
      return out(node, 0, std::move(value)), success();
    }
    if (op == "Div" && b.summands.size() == 1 && !b.summands[0].denominator) {
      const LossSummand &count = b.summands[0];
      if (dependsOnParameter(count.numerator))
        return error(node, "divides by a sum over samples that depends on parameters; the denominator of a loss term must come from inputs alone");
      for (LossSummand &summand : value.summands) {
        if (summand.denominator)
          return refuse();
        // Means over equal numbers of samples: rows cancel.
        double own = summand.denominatorPerRow ? summand.denominatorPerRow : 1, theirs = count.denominatorPerRow ? count.denominatorPerRow : 1;
        if ((summand.denominatorPerRow != 0) != (count.denominatorPerRow != 0))
          return refuse();
        summand.coefficient *= theirs / own / count.coefficient;
        summand.denominatorPerRow = 0;
        summand.denominator = count.numerator;
      }
      return out(node, 0, std::move(value)), success();
    }
    return refuse();
  }
  const Val &loss = lossA ? a : b, &other = lossA ? b : a;
  auto constant = uniformValue(other);
  if (!constant && (other.view.elements() != 1 || isSampled(other) || !isFloat(other.type)))
    return error(node, "combines a sum over samples with a tensor; the loss must be a scalar");
  Val value = loss;
  if ((op == "Add" || op == "Sub") && !isCountOnly(value) && (!constant || *constant != 0)) {
    if (op == "Sub" && !lossA)
      for (LossSummand &summand : value.summands)
        summand.coefficient = -summand.coefficient;
    if (failed(addPenalty(node, other, op == "Sub" && lossA ? -1 : 1, value.summands)))
      return failure();
    return out(node, 0, std::move(value)), success();
  }
  if (!constant)
    return error(
        node,
        "multiplies, divides or compares a sum over samples with what depends on parameters; the loss must be a sum of terms c * sum(a) / D and "
        "of scalars of parameters");
  if (op == "Mul" || (op == "Div" && lossA)) {
    double rowsInFile = static_cast<double>(rows);
    for (LossSummand &summand : value.summands) {
      bool plain = !summand.denominator && summand.denominatorPerRow == 0;
      if (op == "Div" && plain && (*constant == rowsInFile * static_cast<double>(summand.elementsPerRow) || *constant == rowsInFile)) {
        summand.denominatorPerRow = *constant / rowsInFile; // the baked number of tokens, or of samples
        continue;
      }
      summand.coefficient = op == "Mul" ? summand.coefficient * *constant : summand.coefficient / *constant;
    }
    return out(node, 0, std::move(value)), success();
  }
  if ((op == "Add" || op == "Sub") && *constant == 0 && lossA)
    return out(node, 0, std::move(value)), success();
  if (op == "Max") {
    bool isCount = value.summands.size() == 1 && !dependsOnParameter(value.summands[0].numerator);
    if (isCount && *constant <= 1)
      return out(node, 0, std::move(value)), success(); // a step without a label is skipped anyway
  }
  if (op == "Add" && isCountOnly(value) && std::fabs(*constant) <= 1e-3)
    return out(node, 0, std::move(value)), success(); // count + epsilon
  return refuse();
}

bool Importer::isCountOnly(const Val &value) const {
  return value.kind == Val::Kind::Loss && value.summands.size() == 1 && !dependsOnParameter(value.summands[0].numerator) &&
         value.summands[0].denominatorPerRow == 0;
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
  Type compute = elementType(ElementKind::F32);
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
    if (!ignore && !weight) {
      summand.denominatorPerRow = static_cast<double>(summand.elementsPerRow);
    } else {
      auto indexType = cast<RankedTensorType>(index.getType());
      auto floatType = RankedTensorType::get(indexType.getShape(), compute);
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
      summand.denominator = sumPerSample(counted);
    }
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
