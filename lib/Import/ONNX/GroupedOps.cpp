// Operators of groups of samples, except views and picks.
#include "GroupedNode.h"

#include "Interpret.h"

#include "mlir/IR/Diagnostics.h"

#include <algorithm>
#include <utility>

using namespace mlir;
using namespace zorse;
using namespace zorse::onnx_import;

namespace {

/// Moves the row of a value of samples to a separate dimension 0. Other values are not changed.
ImportedValue withRow(ImportedValue value) {
  if (std::exchange(value.grouped, false))
    return value;
  const int64_t axis = value.view.sampleAxis();
  if (axis < 0)
    return value;
  FactorList &list = value.view.dims[axis];
  auto row = std::find_if(list.begin(), list.end(), [](const Factor &f) { return f.sample; });
  const Factor factor = *row;
  list.erase(row);
  value.view.dims.insert(value.view.dims.begin(), FactorList{factor});
  return value;
}

/// The reverse of `withRow`: the row becomes part of dimension 0 of the file.
ImportedValue withoutRow(ImportedValue value) {
  if (!std::exchange(value.grouped, false))
    return value;
  const FactorList row = value.view.dims.front();
  value.view.dims.erase(value.view.dims.begin());
  FactorList &first = value.view.dims.front();
  first.insert(first.begin(), row.begin(), row.end());
  return value;
}

/// Whether a node combines samples for certain, though the operator's own function may accept it as
/// a sum over samples.
bool sumsSamples(OpContext &op) {
  if (op.node.op == "SoftmaxCrossEntropyLoss" || op.node.op == "NegativeLogLikelihoodLoss")
    return op.text("reduction") != "none";
  if (!StringRef(op.node.op).starts_with("Reduce") && op.node.op != "ArgMax" &&
      op.node.op != "ArgMin")
    return false;
  const ImportedValue &x = op.operand(0);
  const int64_t samples = x.view.sampleAxis();
  if (!x.isTensor() || samples < 0)
    return false;
  if (op.node.op == "ArgMax" || op.node.op == "ArgMin")
    return op.axis(x.rank()) == samples;
  std::optional<std::vector<int64_t>> axes;
  if (failed(op.axes(1, x.rank(), axes)))
    return false;
  if (!axes || axes->empty())
    return !op.integer("noop_with_empty_axes");
  return llvm::is_contained(*axes, samples);
}

/// Whether the name is one of the words.
bool isOneOf(StringRef name, StringRef words) {
  SmallVector<StringRef> all;
  words.split(all, ' ');
  return llvm::is_contained(all, name);
}

ImportedValue transposed(ImportedValue value) {
  std::swap(value.view.dims[value.view.dims.size() - 1],
            value.view.dims[value.view.dims.size() - 2]);
  return value;
}

void mark(ImportedValue &value, bool isAffine) {
  value.grouped = value.view.sampleAxis() >= 0;
  value.affine = value.grouped && isAffine;
}

} // namespace

GroupedNode::GroupedNode(OpContext &op) : op(op), make(op) {
  for (size_t i = 0; i < op.node.inputs.size(); ++i) {
    const ImportedValue &operand = op.operand(i);
    rows.push_back(operand && operand.view.sampleAxis() >= 0);
    affine &= !rows.back() || (operand.grouped && operand.affine);
    in.push_back(operand ? withRow(operand) : operand);
  }
}

LogicalResult GroupedNode::run() {
  const std::string &which = op.node.op;
  if (which == "Trilu" || which == "Dropout" || which == "Identity")
    return finish(apply(which, in), which == "Identity");
  if (isElementwise(op.node))
    return elementwise();
  if (StringRef(which).starts_with("Reduce"))
    return reduce();
  if (isOneOf(which,
              "Conv ConvTranspose MaxPool AveragePool GlobalAveragePool GlobalMaxPool LpPool "
              "GlobalLpPool DepthToSpace SpaceToDepth Resize BatchNormalization "
              "InstanceNormalization GroupNormalization LRN"))
    return inFirstDimension();
  if (which == "MatMul")
    return done(product(in[0], rows[0], in[1], rows[1]));
  if (which == "Gemm")
    return gemm();
  if (which == "SoftmaxCrossEntropyLoss" || which == "NegativeLogLikelihoodLoss")
    return crossEntropy();
  if (which == "Shape" || which == "Size")
    return shape();
  if (which == "Transpose")
    return transpose();
  if (which == "Reshape" || which == "Flatten" || which == "Expand" || which == "Squeeze" ||
      which == "Unsqueeze")
    return view();
  if (which == "Slice")
    return slice();
  if (which == "Concat")
    return concat();
  if (which == "Gather")
    return gather();
  if (which == "GatherND")
    return gatherND();
  if (which == "Einsum")
    return einsum();
  if (isOneOf(which, "Softmax LogSoftmax ArgMax ArgMin TopK CumSum GatherElements ScatterElements "
                     "LpNormalization Split OneHot LayerNormalization"))
    return alongAxis();
  return op.error("combines samples, or reads what does; this operator is not supported there");
}

ImportedValue GroupedNode::padded(size_t i, int64_t to) const {
  ImportedValue value = in[i];
  for (int64_t more = to - rank(i); rows[i] && more > 0; --more)
    value.view.dims.insert(value.view.dims.begin() + 1, FactorList{});
  return value;
}

LogicalResult GroupedNode::finish(LogicalResult status, bool keepsAffine) {
  for (int output : op.node.outputs)
    if (succeeded(status) && output >= 0)
      mark(op.state.values[output], keepsAffine && affine);
  return status;
}

LogicalResult GroupedNode::done(ImportedValue value, bool isAffine) {
  if (make.hasFailed())
    return failure();
  mark(value, isAffine && (affine || sumsSamples(op)));
  return make.result(std::move(value));
}

LogicalResult GroupedNode::elementwise() {
  int64_t most = 0;
  for (size_t i = 0; i < in.size(); ++i)
    most = std::max(most, in[i] ? rank(i) : 0);
  std::vector<ImportedValue> operands = in;
  for (size_t i = 0; i < in.size(); ++i)
    if (in[i])
      operands[i] = padded(i, most);
  return finish(apply(op.node.op, std::move(operands)), isAffineFunction());
}

bool GroupedNode::isAffineFunction() const {
  const std::string &which = op.node.op;
  return isOneOf(which, "Add Sub Neg Sum Mean") || (which == "Mul" && rows[0] != rows[1]) ||
         (which == "Div" && rows[0] && !rows[1]) ||
         ((which == "Cast" || which == "CastLike") &&
          isFloat(static_cast<ElementKind>(op.integer("to", 1))) && isFloat(in[0].type));
}

LogicalResult GroupedNode::inFirstDimension() {
  for (size_t i = 1; i < rows.size(); ++i)
    if (rows[i])
      return op.error("combines samples, or reads what does, in operand " + Twine(i) +
                      ", which is not supported");
  std::vector<ImportedValue> operands = in;
  operands[0].grouped = true;
  operands[0] = withoutRow(operands[0]);
  return apply(op.node.op, std::move(operands));
}

LogicalResult GroupedNode::reduce() {
  std::optional<std::vector<int64_t>> axes;
  if (failed(op.axes(1, rank(0), axes)))
    return failure();
  if ((!axes || axes->empty()) && op.integer("noop_with_empty_axes"))
    return done(in[0], true);
  if (!axes || axes->empty()) {
    axes.emplace();
    for (int64_t i = 0; i < rank(0); ++i)
      axes->push_back(i);
  }
  if (axes->empty()) // of a scalar
    return done(in[0], true);
  for (int64_t &axis : *axes)
    ++axis;
  const bool sums = op.node.op == "ReduceSum" || op.node.op == "ReduceMean";
  return done(make.reduce(op.node.op.c_str(), in[0], *axes, op.integer("keepdims") != 0),
              sums && (affine || !op.operand(0).grouped));
}

ImportedValue GroupedNode::product(ImportedValue a, bool aRow, ImportedValue b, bool bRow) {
  const int64_t aRank = a.rank() - aRow, bRank = b.rank() - bRow;
  if (aRank == 1)
    a.view.dims.insert(a.view.dims.end() - 1, FactorList{});
  if (bRank == 1)
    b.view.dims.emplace_back();
  const int64_t most = std::max({aRank, bRank, int64_t(2)});
  for (auto [value, row] : {std::pair(&a, aRow), std::pair(&b, bRow)})
    while (row && value->rank() < most + 1)
      value->view.dims.insert(value->view.dims.begin() + 1, FactorList{});
  ImportedValue result = !aRow ? transposed(make("MatMul", {transposed(b), transposed(a)}))
                               : make("MatMul", {a, b});
  if (make.hasFailed())
    return {};
  if (bRank == 1)
    result.view.dims.pop_back();
  if (aRank == 1)
    result.view.dims.erase(result.view.dims.end() - (bRank == 1 ? 1 : 2));
  return result;
}

LogicalResult GroupedNode::gemm() {
  ImportedValue a = op.integer("transA") ? transposed(in[0]) : in[0],
                b = op.integer("transB") ? transposed(in[1]) : in[1];
  ImportedValue result = product(a, rows[0], b, rows[1]);
  if (op.real("alpha") != 1)
    result = make("Mul", {result, make.number(op.real("alpha"), result)});
  if (op.has(2)) {
    ImportedValue bias = padded(2, 2);
    if (op.real("beta") != 1)
      bias = make("Mul", {bias, make.number(op.real("beta"), bias)});
    result = make("Add", {result, bias});
  }
  return done(std::move(result));
}

LogicalResult GroupedNode::crossEntropy() {
  if (op.isUsed(1))
    return op.error("returns log-probabilities, which is not supported for groups of samples");
  const onnx::Attribute *ignore = op.attribute("ignore_index");
  ImportedValue labels = in[1], losses, weights;
  if (!op.operand(0).grouped && !op.operand(1).grouped && labels.isTensor() && !op.has(2)) {
    // The operator's own function computes it for every sample.
    Decomposition::Attributes attributes{{"reduction", std::string("none")}};
    if (ignore)
      attributes.emplace_back("ignore_index", ignore->i());
    losses = make(op.node.op.c_str(), {op.operand(0), op.operand(1)}, attributes);
    if (!make.hasFailed())
      losses = withRow(losses);
  } else {
    losses = lossesOfScores(weights);
  }
  if (ignore && !make.hasFailed()) {
    ImportedValue kept =
        make.cast(make("Not", {make("Equal", {labels, make.number(double(ignore->i()), labels)})}),
                  losses.type);
    weights = weights ? make("Mul", {weights, kept}) : kept;
    losses = make("Mul", {losses, kept});
  }
  return make.hasFailed() ? failure() : reducedLosses(losses, weights);
}

LogicalResult GroupedNode::reducedLosses(const ImportedValue &losses,
                                         const ImportedValue &weights) {
  const std::string reduction = op.text("reduction");
  if (reduction == "none")
    return done(losses);
  const bool apart = !op.operand(0).grouped && !op.operand(1).grouped;
  std::vector<int64_t> all;
  for (int64_t i = 1; i < losses.rank(); ++i)
    all.push_back(i);
  if (reduction == "mean" && !weights)
    return done(make.reduce("ReduceMean", losses, all), apart);
  ImportedValue sum = make.reduce("ReduceSum", losses, all);
  if (reduction == "sum" || make.hasFailed())
    return done(std::move(sum), apart);
  if (weights.view.sampleAxis() < 0) // labels that are equal in every group
    for (int64_t &axis : all)
      --axis;
  return done(make("Div", {sum, make.reduce("ReduceSum", weights, all)}));
}

ImportedValue GroupedNode::lossesOfScores(ImportedValue &weights) {
  const bool isLogp = op.node.op == "NegativeLogLikelihoodLoss";
  // Classes become the last dimension.
  ImportedValue scores = in[0];
  const FactorList classes = scores.view.dims[2];
  const int64_t count = scores.view.size(2);
  scores.view.dims.erase(scores.view.dims.begin() + 2);
  scores.view.dims.push_back(classes);
  const int64_t last = scores.rank() - 1;
  ImportedValue logs = isLogp ? scores : make("LogSoftmax", {scores}, {{"axis", last}});
  ImportedValue labels = in[1];
  labels.view.dims.emplace_back();
  ImportedValue ids = castTo(
      op.state, constantOf(ElementKind::I64, makeIota(ElementKind::I64, count, 0, 1), {count}),
      labels.type);
  ImportedValue chosen = make("Equal", {labels, ids});
  auto pick = [&](const ImportedValue &from) {
    return make.reduce("ReduceSum", make("Where", {chosen, from, make.number(0, from)}), {last});
  };
  ImportedValue losses = make("Neg", {pick(logs)});
  if (op.has(2)) {
    weights = pick(in[2]);
    losses = make("Mul", {losses, weights});
  }
  return losses;
}

LogicalResult GroupedNode::einsum() {
  std::string equation = op.text("equation"), text;
  equation.erase(std::remove(equation.begin(), equation.end(), ' '), equation.end());
  const size_t arrow = equation.find("->");
  if (arrow == std::string::npos || equation.find("...") != std::string::npos)
    return op.error("expects an equation with a result and without an ellipsis");
  char letter = 'a';
  while (equation.find(letter) != std::string::npos)
    ++letter;
  size_t operand = 0;
  bool begins = true;
  for (size_t i = 0; i < equation.size(); ++i) {
    const bool result = i >= arrow;
    if (i == arrow) {
      text += "->" + std::string(1, letter);
      ++i;
      continue;
    }
    if (!result && begins && rows[operand])
      text += letter;
    begins = equation[i] == ',';
    operand += begins;
    text += equation[i];
  }
  return done(make("Einsum", in, {{"equation", text}}));
}

LogicalResult GroupedNode::alongAxis() {
  const std::string &which = op.node.op;
  if (which == "CumSum") {
    auto axis = constantInt(op.operand(1));
    if (!axis)
      return op.error("expects a constant axis");
    std::vector<ImportedValue> operands = in;
    operands[1] = scalar(ElementKind::I64, double((*axis < 0 ? *axis + rank(0) : *axis) + 1));
    return finish(apply(which, std::move(operands)));
  }
  const int64_t axis = op.integer("axis");
  std::vector<ImportedValue> operands = in;
  for (size_t i = 0; StringRef(which).ends_with("Elements") && i < in.size(); ++i)
    operands[i] = inEveryGroup(i);
  if (make.hasFailed())
    return failure();
  return finish(apply(which, std::move(operands), axis < 0 ? axis : axis + 1),
                which == "Split" && affine);
}

LogicalResult GroupedNode::apply(const std::string &which, std::vector<ImportedValue> operands,
                                 std::optional<int64_t> axis) {
  GraphNode node = op.node;
  node.op = which;
  if (axis) {
    auto attribute = std::make_shared<onnx::Attribute>();
    attribute->set_name("axis");
    attribute->set_type(2);
    attribute->set_i(*axis);
    node.attributes["axis"] = std::move(attribute);
  }
  OpContext shifted(op.state, node);
  return applyWith(shifted, std::move(operands));
}

static LogicalResult applyGrouped(OpContext &op) {
  op.state.inGroup = true;
  const LogicalResult status = GroupedNode(op).run();
  op.state.inGroup = false;
  return status;
}

std::optional<LogicalResult> zorse::onnx_import::applyToGroups(OpContext &op) {
  if (op.state.options.groupRows == 0 || op.state.inGroup)
    return std::nullopt;
  bool grouped = false;
  for (size_t i = 0; i < op.node.inputs.size(); ++i)
    grouped |= op.operand(i).grouped;
  if (grouped || sumsSamples(op))
    return applyGrouped(op);
  // What the operator's own function refuses because it combines samples is grouped.
  std::vector<std::string> refused;
  op.state.inGroup = true;
  LogicalResult status = failure();
  {
    ScopedDiagnosticHandler keep(&op.state.context, [&](Diagnostic &diagnostic) {
      refused.push_back(diagnostic.str());
      return success();
    });
    status = applyOperator(op);
    if (failed(status)) {
      op.state.inGroup = false;
      status = applyGrouped(op);
    }
  }
  op.state.inGroup = false;
  if (failed(status) && !refused.empty())
    emitError(UnknownLoc::get(&op.state.context)) << refused.front();
  return status;
}
