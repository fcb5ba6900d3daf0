// Imports normalizations by statistics of a sample (per channel, per channel group or over
// neighboring channels), of a group of samples, or by constant statistics.
#include "Decomposition.h"
#include "Initializers.h"

#include <algorithm>
#include <cmath>

using namespace mlir;
using namespace zorse;
using namespace zorse::onnx_import;

/// (x - mean) / sqrt(variance + epsilon) over the last axis.
static ImportedValue normalisedLast(Decomposition &make, const ImportedValue &x, double epsilon) {
  const int64_t last = x.rank() - 1;
  ImportedValue centred = make("Sub", {x, make.reduce("ReduceMean", x, {last}, true)});
  ImportedValue variance = make.reduce("ReduceMean", make("Mul", {centred, centred}), {last}, true);
  return make("Div", {centred, make("Sqrt", {make("Add", {variance, make.number(epsilon, x)})})});
}

/// Reshapes values [C] to broadcast over x [N, C, ...].
static ImportedValue alongChannels(Decomposition &make, const ImportedValue &values,
                                   const ImportedValue &x) {
  std::vector<int64_t> shape(x.rank() - 1, 1);
  shape[0] = values.view.elements();
  return make.reshape(values, shape);
}

static ImportedValue scaledAndShifted(Decomposition &make, const ImportedValue &x,
                                      const ImportedValue &scale, const ImportedValue &bias) {
  return make("Add",
              {make("Mul", {x, alongChannels(make, scale, x)}), alongChannels(make, bias, x)});
}

/// Checks that a norm applies to x [N, C, ...], and that its weights have one dimension.
static LogicalResult checkChannels(OpContext &op, const ImportedValue &x, int64_t weights) {
  if (!x.isArray() || !isFloat(x.type) || x.rank() < 2 || x.view.elements() == 0)
    return op.error("expects floats of samples x channels x positions");
  if (x.view.sampleAxis() > 0)
    return op.error("has its samples in dimension " + Twine(x.view.sampleAxis()) +
                    "; expects them in dimension 0");
  for (int64_t i = 1; i <= weights; ++i)
    if (isBatched(op.operand(i)) || op.operand(i).rank() != 1)
      return op.error("expects operand " + Twine(i) + " to have one dimension and no samples");
  return success();
}

static LogicalResult importInstanceNorm(OpContext &op) {
  ImportedValue x = op.operand(0);
  if (failed(checkChannels(op, x, 2)))
    return failure();
  std::vector<int64_t> shape = x.shape();
  if (op.operand(1).view.size(0) != shape[1] || op.operand(2).view.size(0) != shape[1])
    return op.error("expects " + Twine(shape[1]) + " scales and biases, one per channel");
  Decomposition make(op);
  ImportedValue flat =
      make.reshape(x, {shape[0], shape[1], x.view.elements() / shape[0] / shape[1]});
  if (make.hasFailed())
    return failure();
  ImportedValue normal = make.reshape(normalisedLast(make, flat, op.real("epsilon")), shape);
  return make.result(scaledAndShifted(make, normal, op.operand(1), op.operand(2)));
}

/// \tparam scalesChannels  whether there is one scale per channel; else one per group
template <bool scalesChannels> static LogicalResult importGroupNorm(OpContext &op) {
  ImportedValue x = op.operand(0), scale = op.operand(1), bias = op.operand(2);
  if (failed(checkChannels(op, x, 2)))
    return failure();
  std::vector<int64_t> shape = x.shape();
  const int64_t groups = op.integer("num_groups"), channels = shape[1];
  if (groups < 1 || channels % groups != 0)
    return op.error("expects groups that divide its " + Twine(channels) + " channels, found " +
                    Twine(groups));
  const int64_t expected = scalesChannels ? channels : groups;
  if (scale.view.size(0) != expected || bias.view.size(0) != expected)
    return op.error("expects " + Twine(expected) + " scales and biases, one per " +
                    (scalesChannels ? "channel" : "group") + " in opset " + Twine(op.node.opset) +
                    ", found " + Twine(scale.view.size(0)) + " and " + Twine(bias.view.size(0)));
  Decomposition make(op);
  ImportedValue flat = make.reshape(x, {shape[0], groups, x.view.elements() / shape[0] / groups});
  if (make.hasFailed())
    return failure();
  ImportedValue normal = make.reshape(normalisedLast(make, flat, op.real("epsilon")), shape);
  auto perChannel = [&](const ImportedValue &values) {
    ImportedValue repeated =
        make("Expand", {make.unsqueeze(values, 1), make.ints({expected, channels / expected})});
    return make.reshape(repeated, {channels});
  };
  return make.result(scaledAndShifted(make, normal, perChannel(scale), perChannel(bias)));
}

/// Imports a batch norm with statistics of groups of samples.
/// A row is a group of samples. Its statistics are taken over the samples and positions of every
/// channel in the row. Evaluation uses the running statistics instead.
static LogicalResult normalisedByGroups(OpContext &op) {
  ImportedValue x = op.operand(0);
  if (x.view.sampleAxis() != 0)
    return op.error("expects samples in dimension 0");
  const std::vector<int64_t> shape = x.shape();
  const int64_t channels = shape[1], samples = shape[0] / op.state.rows,
                positions = x.view.elements() / shape[0] / channels, count = samples * positions;
  if (count < 2)
    return op.error("expects more than one value of a channel in a group; give a larger "
                    "--group-rows");
  for (size_t output : {1, 2})
    if (output < op.node.outputs.size() && op.node.outputs[output] >= 0 && op.isUsed(output))
      return op.error(
          "its output " + Twine(output) +
          " (a running statistic after the step) is used; only its first output is supported");
  FailureOr<Value> runningMean = runningStatistic(op, 3), runningVariance = runningStatistic(op, 4);
  if (failed(runningMean) || failed(runningVariance))
    return failure();

  Decomposition make(op);
  ImportedValue grouped = make.reshape(x, {op.state.rows, samples, channels, positions});
  ImportedValue mean = make.reduce("ReduceMean", grouped, {1, 3}, true);
  ImportedValue centred = make("Sub", {grouped, mean});
  ImportedValue variance = make.reduce("ReduceMean", make("Mul", {centred, centred}), {1, 3}, true);
  if (make.hasFailed())
    return failure();
  const double momentum = op.real("momentum"), decimal = std::round(1e6 * (1 - momentum)) / 1e6;
  const double weight = static_cast<float>(1 - decimal) == static_cast<float>(momentum)
                            ? decimal
                            : 1 - momentum; // files store f32
  if (!(weight > 0 && weight <= 1))
    return op.error("expects a momentum of at least 0 and below 1");
  auto tracked = [&](const ImportedValue &observed, Value running, double correction) {
    Value row = materialise(op.state, make.reshape(observed, {op.state.rows, channels}),
                            /*dropOnes=*/false);
    Value used = create<RunningStatOp>(op.state, row, running,
                                       op.state.builder.getF64FloatAttr(weight),
                                       op.state.builder.getF64FloatAttr(correction));
    return make.reshape(wrap(used, x.type, {op.state.rows, channels}),
                        {op.state.rows, 1, channels, 1});
  };
  const auto n = static_cast<double>(count);
  ImportedValue usedMean = tracked(mean, *runningMean, 1),
                usedVariance = tracked(variance, *runningVariance, n / (n - 1));
  ImportedValue root =
      make("Sqrt", {make("Add", {usedVariance, make.number(op.real("epsilon"), usedVariance)})});
  ImportedValue normal = make.reshape(make("Div", {make("Sub", {grouped, usedMean}), root}), shape);
  return make.result(scaledAndShifted(make, normal, op.operand(1), op.operand(2)));
}

/// Imports BatchNormalization. With constant statistics, samples stay independent.
static LogicalResult importBatchNorm(OpContext &op) {
  ImportedValue x = op.operand(0), scale = op.operand(1), bias = op.operand(2);
  // Exporters write batch norms in evaluation mode, regardless of the mode of the module. The
  // metadata lists the norms that train; without metadata all of them train.
  auto initializer = op.state.initializers.find(op.node.inputs[3]);
  const bool told = op.integer("training_mode") != 0;
  const bool trains = !op.state.metadata.statistics ||
                      (initializer != op.state.initializers.end() &&
                       op.state.metadata.statistics->count(initializer->second->name()));
  const bool training = told || (op.state.options.groupRows > 0 && trains);
  if (told && op.state.options.groupRows == 0)
    return op.error("normalizes by statistics of the batch (training_mode = 1), which mix samples; "
                    "plans keep samples apart. Give --group-rows=G, the "
                    "statistics of groups of G samples (the batch, as on one device, or what each "
                    "device of data parallelism has), use nn.GroupNorm or "
                    "nn.LayerNorm, or export with these layers in evaluation mode (module.eval()), "
                    "which normalizes by their running statistics");
  if (failed(checkChannels(op, x, training ? 2 : 4)))
    return failure();
  const int64_t channels = x.view.size(1);
  for (size_t i = 1; i < 5; ++i)
    if (op.operand(i).view.size(0) != channels)
      return op.error("expects " + Twine(channels) + " elements in operand " + Twine(i) +
                      ", one per channel, found " + Twine(op.operand(i).view.size(0)));
  if (training)
    return normalisedByGroups(op);
  Decomposition make(op);
  ImportedValue mean = frozenStatistic(op, 3), variance = frozenStatistic(op, 4);
  ImportedValue root =
      make("Sqrt", {make("Add", {variance, make.number(op.real("epsilon"), variance)})});
  ImportedValue normal =
      make("Div", {make("Sub", {x, alongChannels(make, mean, x)}), alongChannels(make, root, x)});
  op.state.frozenNorms.push_back(op.node.name);
  op.state.normsMayTrain |= op.state.options.groupRows == 0 && trains;
  op.state.normsTrain |= trains && op.state.metadata.statistics;
  return make.result(scaledAndShifted(make, normal, scale, bias));
}

/// (x - E x) / (sqrt(E x^2 - (E x)^2) + 1e-9), as ONNX defines it.
static LogicalResult importMeanVarianceNorm(OpContext &op) {
  ImportedValue x = op.operand(0);
  std::vector<int64_t> axes = *op.integers("axes");
  if (!isFloat(x.type))
    return op.error("expects floats, found " + Twine(name(x.type)));
  Decomposition make(op);
  ImportedValue mean = make.reduce("ReduceMean", x, axes, true),
                square = make.reduce("ReduceMean", make("Mul", {x, x}), axes, true);
  if (make.hasFailed() || mean.isLoss())
    return make.hasFailed()
               ? failure()
               : op.error("normalizes over the samples; every op must treat samples apart");
  ImportedValue deviation = make("Sqrt", {make("Sub", {square, make("Mul", {mean, mean})})});
  return make.result(
      make("Div", {make("Sub", {x, mean}), make("Add", {deviation, make.number(1e-9, x)})}));
}

/// x / (bias + alpha / size * s)^beta, with the sum s of the squares of `size` neighboring
/// channels. Channels outside of x count as 0.
static LogicalResult importLocalResponseNorm(OpContext &op) {
  constexpr int64_t kMaxSlices = 256;
  ImportedValue x = op.operand(0);
  if (failed(checkChannels(op, x, 0)))
    return failure();
  const int64_t size = op.integer("size"), channels = x.view.size(1);
  if (size < 1)
    return op.error("expects a size of 1 or more, found " + Twine(size));
  // The sum is over the channels from c - before to c + after.
  const int64_t before = std::min((size - 1) / 2, channels - 1),
                after = std::min(size / 2, channels - 1);
  if (before + after + 1 > kMaxSlices)
    return op.error("sums over " + Twine(before + after + 1) + " channels; at most " +
                    Twine(kMaxSlices) + " are supported");
  Decomposition make(op);
  ImportedValue squares = make("Mul", {x, x}), sum = squares;
  if (before + after > 0) {
    std::vector<int64_t> pads(2 * x.rank(), 0);
    pads[1] = before;
    pads[x.rank() + 1] = after;
    squares = make("Pad", {squares, make.ints(std::move(pads)), make.number(0, x)});
    sum = make.slice(squares, 1, 0, channels);
    for (int64_t k = 1; k <= before + after && !make.hasFailed(); ++k)
      sum = make("Add", {sum, make.slice(squares, 1, k, channels)});
  }
  ImportedValue scaled =
      make("Mul", {sum, make.number(op.real("alpha") / static_cast<double>(size), x)});
  ImportedValue base = make("Add", {scaled, make.number(op.real("bias"), x)});
  return make.result(make("Div", {x, make("Pow", {base, make.number(op.real("beta"), x)})}));
}

void zorse::onnx_import::registerStatisticOps(OperatorRegistry &registry) {
  const std::vector<AttributeInfo> groupNorm = {
      real("epsilon", 1e-5), required(integer("num_groups")), only(integer("stash_type"), {"1"})};
  registry.add({
      {{"InstanceNormalization"}, 3, 3, {real("epsilon", 1e-5)}, importInstanceNorm},
      {{"GroupNormalization"}, 3, 3, groupNorm, importGroupNorm<false>, until(20)},
      {{"GroupNormalization"}, 3, 3, groupNorm, importGroupNorm<true>, since(21)},
      {{"BatchNormalization"},
       5,
       5,
       {real("epsilon", 1e-5), real("momentum", 0.9), integer("training_mode", 0)},
       importBatchNorm},
      {{"MeanVarianceNormalization"}, 1, 1, {integers("axes", {0, 2, 3})}, importMeanVarianceNorm},
      {{"LRN"},
       1,
       1,
       {real("alpha", 1e-4), real("beta", 0.75), real("bias", 1), required(integer("size"))},
       importLocalResponseNorm},
  });
}
