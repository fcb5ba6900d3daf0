// Normalisations by statistics of a sample: of its channels, of groups of them, or by statistics that are constants.
#include "Composition.h"

using namespace mlir;
using namespace zorse;
using namespace zorse::onnx_import;

/// (x - mean) / sqrt(variance + epsilon) over the last axis.
static Val normalisedLast(Composition &make, const Val &x, double epsilon) {
  const int64_t last = x.rank() - 1;
  Val centred = make("Sub", {x, make.reduce("ReduceMean", x, {last}, true)});
  Val variance = make.reduce("ReduceMean", make("Mul", {centred, centred}), {last}, true);
  return make("Div", {centred, make("Sqrt", {make("Add", {variance, make.number(epsilon, x)})})});
}

/// values [C] over x [N, C, ...]
static Val alongChannels(Composition &make, const Val &values, const Val &x) {
  std::vector<int64_t> shape(x.rank() - 1, 1);
  shape[0] = values.view.elements();
  return make.reshape(values, shape);
}

static Val scaledAndShifted(Composition &make, const Val &x, const Val &scale, const Val &bias) {
  return make("Add", {make("Mul", {x, alongChannels(make, scale, x)}), alongChannels(make, bias, x)});
}

// What all three need of x [N, C, ...] and of their weights.
LogicalResult Importer::checkChannels(const GraphNode &node, const Val &x, int64_t weights) {
  if ((!x.isGraph() && !x.isConstant()) || !isFloat(x.type) || x.rank() < 2 || x.view.elements() == 0)
    return error(node, "expects floats of samples x channels x positions");
  if (x.view.sampleAxis() > 0)
    return error(node, "has its samples in dimension " + Twine(x.view.sampleAxis()) + "; expects them in dimension 0");
  for (int64_t i = 1; i <= weights; ++i)
    if (isSampled(in(node, i)) || in(node, i).rank() != 1)
      return error(node, "expects operand " + Twine(i) + " to have one dimension and no samples");
  return success();
}

LogicalResult Importer::onInstanceNorm(const GraphNode &node) {
  Val x = in(node, 0);
  if (failed(checkChannels(node, x, 2)))
    return failure();
  std::vector<int64_t> shape = x.shape();
  if (in(node, 1).view.size(0) != shape[1] || in(node, 2).view.size(0) != shape[1])
    return error(node, "expects " + Twine(shape[1]) + " scales and biases, one per channel");
  Composition make(*this, node);
  Val flat = make.reshape(x, {shape[0], shape[1], x.view.elements() / shape[0] / shape[1]});
  if (make.hasFailed())
    return failure();
  Val normal = make.reshape(normalisedLast(make, flat, floatAttribute(node, "epsilon", 1e-5)), shape);
  return make.result(scaledAndShifted(make, normal, in(node, 1), in(node, 2)));
}

// Up to opset 20 a scale belongs to a group, later to a channel.
LogicalResult Importer::onGroupNorm(const GraphNode &node) {
  Val x = in(node, 0), scale = in(node, 1), bias = in(node, 2);
  if (failed(checkChannels(node, x, 2)))
    return failure();
  std::vector<int64_t> shape = x.shape();
  const int64_t groups = intAttribute(node, "num_groups", 1), channels = shape[1];
  if (groups < 1 || channels % groups != 0)
    return error(node, "expects groups that divide its " + Twine(channels) + " channels, found " + Twine(groups));
  const int64_t expected = node.opset < 21 ? groups : channels;
  if (scale.view.size(0) != expected || bias.view.size(0) != expected)
    return error(node, "expects " + Twine(expected) + " scales and biases, one per " + (node.opset < 21 ? "group" : "channel") + " in opset " +
                           Twine(node.opset) + ", found " + Twine(scale.view.size(0)) + " and " + Twine(bias.view.size(0)));
  Composition make(*this, node);
  Val flat = make.reshape(x, {shape[0], groups, x.view.elements() / shape[0] / groups});
  if (make.hasFailed())
    return failure();
  Val normal = make.reshape(normalisedLast(make, flat, floatAttribute(node, "epsilon", 1e-5)), shape);
  auto perChannel = [&](const Val &values) {
    Val repeated = make("Expand", {make.unsqueeze(values, 1), make.ints({expected, channels / expected})});
    return make.reshape(repeated, {channels});
  };
  return make.result(scaledAndShifted(make, normal, perChannel(scale), perChannel(bias)));
}

// With statistics that are constants, samples stay independent.
LogicalResult Importer::onBatchNorm(const GraphNode &node) {
  Val x = in(node, 0), scale = in(node, 1), bias = in(node, 2), mean = in(node, 3), variance = in(node, 4);
  if (intAttribute(node, "training_mode", 0) != 0)
    return error(node, "normalises by statistics of the batch (training_mode = 1), which mix samples; plans keep samples apart. Use nn.GroupNorm or "
                       "nn.LayerNorm, or export with these layers in evaluation mode (module.eval()), which normalises by their running statistics");
  if (failed(checkChannels(node, x, 4)))
    return failure();
  const int64_t channels = x.view.size(1);
  for (size_t i = 1; i < 5; ++i)
    if (in(node, i).view.size(0) != channels)
      return error(node,
                   "expects " + Twine(channels) + " elements in operand " + Twine(i) + ", one per channel, found " + Twine(in(node, i).view.size(0)));
  Composition make(*this, node);
  Val root = make("Sqrt", {make("Add", {variance, make.number(floatAttribute(node, "epsilon", 1e-5), variance)})});
  Val normal = make("Div", {make("Sub", {x, alongChannels(make, mean, x)}), alongChannels(make, root, x)});
  warn("node '" + node.name + "' (BatchNormalization) normalises by its running statistics, which training does not change");
  return make.result(scaledAndShifted(make, normal, scale, bias));
}

// (x - E x) / (sqrt(E x^2 - (E x)^2) + 1e-9), as ONNX defines it.
LogicalResult Importer::onMeanVarianceNorm(const GraphNode &node) {
  Val x = in(node, 0);
  std::vector<int64_t> axes = intsAttribute(node, "axes").value_or(std::vector<int64_t>{0, 2, 3});
  if (!isFloat(x.type))
    return error(node, "expects floats, found " + Twine(name(x.type)));
  Composition make(*this, node);
  Val mean = make.reduce("ReduceMean", x, axes, true), square = make.reduce("ReduceMean", make("Mul", {x, x}), axes, true);
  if (make.hasFailed() || mean.kind == Val::Kind::Loss)
    return make.hasFailed() ? failure() : error(node, "normalises over the samples; every op must treat samples apart");
  Val deviation = make("Sqrt", {make("Sub", {square, make("Mul", {mean, mean})})});
  return make.result(make("Div", {make("Sub", {x, mean}), make("Add", {deviation, make.number(1e-9, x)})}));
}

void Importer::addStatisticOps(OperatorTable &table) {
  table.add({"InstanceNormalization"}, 3, 3, "epsilon:f", &Importer::onInstanceNorm);
  table.add({"GroupNormalization"}, 3, 3, "epsilon:f num_groups:i! stash_type:i=1", &Importer::onGroupNorm);
  table.add({"BatchNormalization"}, 5, 5, "epsilon:f momentum:f~ training_mode:i", &Importer::onBatchNorm);
  table.add({"MeanVarianceNormalization"}, 1, 1, "axes:is", &Importer::onMeanVarianceNorm);
}
