#include "HeadProgram.h"

#include "../Reference/Evaluator.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

#include <algorithm>
#include <limits>

using namespace mlir;
using namespace zorse;
using namespace zorse::onnx_import;
using reference::Tensor;

HeadProgram::HeadProgram(func::FuncOp function) : function(function) {}

bool HeadProgram::readTerms() {
  Operation *end = function.getBody().front().getTerminator();
  std::map<int64_t, HeadCount> byNumber;
  for (unsigned i = 0; i < function.getNumResults(); ++i) {
    if (auto number = function.getResultAttrOfType<IntegerAttr>(i, attributes::kCount)) {
      auto reduce = function.getResultAttrOfType<StringAttr>(i, attributes::kReduce);
      byNumber[number.getInt()] = {
          end->getOperand(i), reduce
                                  ? symbolizeReduceKind(reduce.getValue()).value_or(ReduceKind::Sum)
                                  : ReduceKind::Sum};
      continue;
    }
    auto text = function.getResultAttrOfType<StringAttr>(i, attributes::kFactor);
    if (!text)
      continue;
    auto factor = Expression::parse(text.getValue());
    if (factor.failed())
      return why = factor.message(), false;
    terms.push_back({end->getOperand(i), *factor});
  }
  for (auto &[number, count] : byNumber) {
    if (number != static_cast<int64_t>(counts.size()))
      return why = "count n" + std::to_string(counts.size()) + " is missing", false;
    counts.push_back(count);
  }
  return true;
}

void HeadProgram::need(ArrayRef<Value> roots, const llvm::DenseSet<Value> &cuts,
                       llvm::DenseSet<Operation *> &needed, std::vector<BlockArgument> &open) {
  SmallVector<Value> stack(roots);
  while (!stack.empty()) {
    Value value = stack.pop_back_val();
    if (!met.insert(value).second || cuts.contains(value))
      continue;
    Operation *op = value.getDefiningOp();
    if (!op) {
      open.push_back(cast<BlockArgument>(value));
      continue;
    }
    needed.insert(op);
    for (OpOperand &operand : op->getOpOperands())
      if (!(ofLabel && isa<CrossEntropyOp>(op) && operand.getOperandNumber() == 0))
        stack.push_back(operand.get());
  }
}

std::vector<BlockArgument> HeadProgram::slice(const llvm::DenseSet<Value> &cuts, bool lossOfLabel) {
  ofLabel = lossOfLabel;
  met.clear();
  order.clear();
  shared.clear();
  counting.clear();
  std::vector<BlockArgument> open;
  SmallVector<Value> numerators, countValues;
  for (const HeadTerm &term : terms)
    numerators.push_back(term.numerator);
  for (const HeadCount &count : counts)
    countValues.push_back(count.value);
  llvm::DenseSet<Operation *> needed;
  for (Value count : countValues) { // sequential: a count may read earlier ones
    llvm::DenseSet<Operation *> ofCount;
    need(count, cuts, ofCount, open);
    counting.emplace_back();
    for (Operation &op : function.getBody().front())
      if (ofCount.contains(&op))
        counting.back().push_back(&op);
    needed.insert(ofCount.begin(), ofCount.end());
  }
  need(numerators, cuts, needed, open);
  for (Operation &op : function.getBody().front()) {
    if (!needed.contains(&op))
      continue;
    const bool sampled =
        llvm::any_of(op.getResultTypes(), [](Type type) { return zorse::carriesSamples(type); });
    (sampled ? order : shared).push_back(&op);
  }
  return open;
}

static int64_t elementsOf(Type type, int64_t samples) {
  int64_t count = 1;
  for (int64_t size : cast<RankedTensorType>(type).getShape())
    if (__builtin_mul_overflow(count, ShapedType::isDynamic(size) ? samples : size, &count))
      return std::numeric_limits<int64_t>::max();
  return count;
}

int64_t HeadProgram::operations(int64_t samples) const {
  double sum = 0;
  for (const auto &list : {order, shared})
    for (Operation *op : list)
      for (Value result : op->getResults()) {
        auto elements = static_cast<double>(elementsOf(result.getType(), samples));
        for (Value operand : op->getOperands())
          if (!isa<MatmulOp, AttentionOp>(op) && !(ofLabel && isa<CrossEntropyOp>(op)))
            elements =
                std::max(elements, static_cast<double>(elementsOf(operand.getType(), samples)));
        if (auto product = dyn_cast<MatmulOp>(op)) {
          auto type = cast<RankedTensorType>(product.getA().getType());
          elements *= static_cast<double>(
              type.getDimSize(type.getRank() - (product.getTransposeA() ? 2 : 1)));
        }
        if (auto attention = dyn_cast<AttentionOp>(op))
          elements *= 2 * static_cast<double>(
                              cast<RankedTensorType>(attention.getK().getType()).getDimSize(1));
        sum += elements;
      }
  for (Value value : met)
    if (isa<BlockArgument>(value))
      sum += static_cast<double>(elementsOf(value.getType(), samples));
  return sum > 0x1p62 ? int64_t(1) << 62 : static_cast<int64_t>(sum);
}

/// Values that are the same for all cells are shared instead of copied.
const Tensor &HeadProgram::tensorOf(Value value, const Values &values) const {
  auto found = values.find(value);
  return found != values.end() ? found->second : sharedValues.find(value)->second;
}

// Evaluates the cross-entropy of a position by the same function of its label as on the file's
// side, without logits.
bool HeadProgram::evaluateLoss(CrossEntropyOp op, Values &values) {
  if (op.getStatistics())
    return why = "a cross-entropy has a second result", false;
  const Tensor &labels = tensorOf(op.getLabels(), values);
  const Tensor *weights = op.getWeights() ? &tensorOf(op.getWeights(), values) : nullptr;
  Tensor loss = Tensor::filled(labels.shape, 0);
  for (int64_t i = 0; i < labels.size(); ++i) {
    const auto label = static_cast<int64_t>(labels.values[i]);
    if (op.getIgnoreIndex() && label == static_cast<int64_t>(*op.getIgnoreIndex()))
      continue;
    if (weights && (label < 0 || label >= weights->size()))
      return why = "a label is out of range", false;
    loss.values[i] = onnx_reference::lossOfLabel(label) * (weights ? weights->values[label] : 1);
  }
  values[op.getLoss()] = std::move(loss);
  return true;
}

bool HeadProgram::evaluate(Operation *op, Values &values, int64_t rows) {
  if (auto loss = dyn_cast<CrossEntropyOp>(op); loss && ofLabel)
    return evaluateLoss(loss, values);
  if (isa<RoundOp, arith::TruncFOp, arith::ExtFOp>(op)) { // both sides compute in f64
    Tensor same = tensorOf(op->getOperand(0), values);
    values[op->getResult(0)] = std::move(same);
    return true;
  }
  SmallVector<Tensor> operands;
  for (Value operand : op->getOperands())
    operands.push_back(tensorOf(operand, values));
  reference::Options rowsOf = options;
  rowsOf.rows = rows;
  FailureOr<std::vector<Tensor>> results = reference::evaluate(op, operands, rowsOf);
  if (failed(results))
    return why = "operation " + op->getName().getStringRef().str() + " cannot be evaluated", false;
  for (auto [value, tensor] : llvm::zip(op->getResults(), *results))
    values[value] = std::move(tensor);
  return true;
}

bool HeadProgram::run(ArrayRef<Operation *> operations, int64_t first, int64_t last,
                      Values &values) {
  for (auto &[value, whole] : data) {
    const bool sampled = zorse::carriesSamples(value.getType());
    if (!met.contains(value) || (!sampled && &values != &sharedValues))
      continue;
    if (!sampled) {
      values[value] = whole;
      continue;
    }
    const int64_t perRow = whole.size() / batch;
    Tensor part;
    part.shape = whole.shape;
    part.shape[0] = last - first;
    part.values.assign(whole.values.begin() + first * perRow, whole.values.begin() + last * perRow);
    values[value] = std::move(part);
  }
  options.sampleBase = first;
  for (Operation *op : operations)
    if (!evaluate(op, values, last - first))
      return false;
  return true;
}

double HeadProgram::reduced(const HeadCount &count, const Values &values) const {
  const std::vector<double> &all = tensorOf(count.value, values).values;
  if (count.reduce == ReduceKind::Max)
    return *std::max_element(all.begin(), all.end());
  if (count.reduce == ReduceKind::Min)
    return *std::min_element(all.begin(), all.end());
  double sum = 0;
  for (double value : all)
    sum += value;
  return sum;
}

bool HeadProgram::begin(const Data &given, int64_t samples) {
  data = given;
  batch = samples;
  cells.clear();
  why.clear();
  options = reference::Options();
  options.training = false;
  options.samples = batch;
  // Counts come first: they depend only on inputs, and other operations may read values made from
  // them.
  sharedValues.clear();
  for (size_t j = 0; j < counts.size(); ++j) {
    if (!run(counting[j], 0, batch, sharedValues))
      return false;
    options.counts.push_back(reduced(counts[j], sharedValues));
  }
  sharedValues.clear();
  return run(shared, 0, batch, sharedValues);
}

bool HeadProgram::cell(int64_t first, int64_t last, Sums &sums) {
  auto found = cells.find({first, last});
  if (found != cells.end())
    return sums = found->second, true;
  Values values;
  if (!run(order, first, last, values))
    return false;
  Sums result;
  for (const HeadTerm &term : terms) {
    double sum = 0;
    for (double value : tensorOf(term.numerator, values).values)
      sum += value;
    result.numerators.push_back(sum);
  }
  for (const HeadCount &count : counts)
    result.counts.push_back(reduced(count, values));
  return sums = cells[{first, last}] = std::move(result), true;
}
