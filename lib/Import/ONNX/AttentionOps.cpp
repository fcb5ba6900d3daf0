// The ONNX operators Attention and RotaryEmbedding (opset 23 and later).
#include "Arithmetic.h"
#include "LoopNest.h"
#include "OpContext.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

#include <algorithm>
#include <cmath>

using namespace mlir;
using namespace zorse;
using namespace zorse::onnx_import;

/// The mask of an Attention as a tensor. Null if it hides nothing, or if options of `attention`
/// express it.
static FailureOr<Value> attentionMask(OpContext &op, const ImportedValue &q, int64_t keys,
                                      AttentionOptions &attention) {
  if (!op.has(3))
    return Value();
  int64_t heads = q.view.size(1), queries = q.view.size(2);
  ImportedValue m = compressed(op.state, op.operand(3));
  auto uniform = uniformValue(op.state, m);
  if (uniform && (*uniform != 0) == (m.type == ElementKind::Bool))
    return Value(); // hides nothing
  while (m.rank() < 4)
    m.view.dims.insert(m.view.dims.begin(), FactorList{});
  // Rows of a constant are copies of each other.
  std::vector<ImportedValue> operands{q, m};
  for (ImportedValue &operand : operands)
    operand.view.dims.resize(1);
  if (failed(LoopNest::of(op, std::move(operands))))
    return failure();
  if (!isBatched(m))
    m.view.dims[0].clear();
  bool perHead = std::any_of(m.view.dims[1].begin(), m.view.dims[1].end(),
                             [](const Factor &factor) { return factor.stride != 0; });
  FactorList queryList = m.view.size(2) == queries ? m.view.dims[2]
                                                   : FactorList{Factor{queries, 0, false}};
  FactorList keyList = m.view.size(3) == keys ? m.view.dims[3] : FactorList{Factor{keys, 0, false}};
  Groups groups{perHead ? m.view.dims[1] : FactorList{}, queryList, keyList};
  Value value = materialise(op.state, m, groups, isBatched(m));
  auto causal = value.getDefiningOp<CausalMaskOp>();
  if (!causal && value.getDefiningOp() && isa<ReshapeOp>(value.getDefiningOp()))
    causal = value.getDefiningOp()->getOperand(0).getDefiningOp<CausalMaskOp>();
  if (causal && !m.hides) {
    attention.causal = true;
    if (causal.getWindow())
      attention.window = *causal.getWindow();
    return Value();
  }
  return isBatched(value) ? value
                          : reshapeTo(op.state, value, {1, perHead ? heads : 1, queries, keys});
}

/// Reshapes x [rows, positions, heads * channels] to [rows, heads, positions, channels].
/// \param attributes  names of the attributes that give the number of heads
static FailureOr<ImportedValue> splitHeads(OpContext &op, const ImportedValue &x, int64_t heads,
                                           const char *attributes) {
  std::vector<int64_t> shape = x.shape();
  if (heads <= 0 || shape[2] % heads != 0)
    return op.error("expects " + Twine(attributes) + " that divide the channels");
  auto value = reshaped(op, x, {shape[0], shape[1], heads, shape[2] / heads});
  if (succeeded(value))
    std::swap(value->view.dims[1], value->view.dims[2]);
  return value;
}

/// Sets the node's result from [rows, positions, heads, channels]: merges heads with channels if
/// `flat`, otherwise moves heads before positions.
static LogicalResult outHeads(OpContext &op, ImportedValue result, bool flat) {
  if (flat) {
    std::vector<int64_t> shape = result.shape();
    return op.result(reshaped(op, result, {shape[0], shape[1], shape[2] * shape[3]}));
  }
  std::swap(result.view.dims[1], result.view.dims[2]);
  return op.result(std::move(result));
}

/// Positions, heads and channels of keys or values without repeated heads. Empty if the heads are
/// not repeated.
static Groups unrepeated(const ImportedValue &x) {
  const FactorList &list = x.view.dims[1];
  if (list.size() == 2 && list[1].stride == 0 && list[1].size > 1)
    return {x.view.dims[2], {list[0]}, x.view.dims[3]};
  if (list.size() == 1 && list[0].stride == 0)
    return {x.view.dims[2], {}, x.view.dims[3]};
  return {};
}

/// Attention of opset 23 and 24. The shape of q, k and v is [rows, heads, positions, channels] or
/// [rows, positions, heads * channels].
static LogicalResult importAttention(OpContext &op) {
  ImportedValue q = op.operand(0), k = op.operand(1), v = op.operand(2);
  for (size_t i = 4; i < op.node.inputs.size(); ++i)
    if (op.has(i))
      return op.error("uses a cache of past keys; export the model for training (use_cache=False)");
  for (size_t i = 1; i < op.node.outputs.size(); ++i)
    if (op.node.outputs[i] >= 0)
      for (const GraphNode &other : op.state.graph.body.nodes)
        if (std::find(other.inputs.begin(), other.inputs.end(), op.node.outputs[i]) !=
            other.inputs.end())
          return op.error("only its first output is supported");
  bool flat = q.rank() == 3;
  auto split = [&](ImportedValue &x, int64_t heads) -> LogicalResult {
    if (x.rank() == 3) {
      auto value = splitHeads(op, x, heads, "q_num_heads and kv_num_heads");
      if (failed(value))
        return failure();
      x = std::move(*value);
    }
    if (x.rank() != 4 || !x.isTensor() || !isFloat(x.type))
      return op.error("expects float activations of rank 3 or 4");
    return success();
  };
  int64_t qHeads = op.integer("q_num_heads"), kHeads = op.integer("kv_num_heads");
  if (failed(split(q, qHeads)) || failed(split(k, kHeads)) || failed(split(v, kHeads)))
    return failure();
  int64_t heads = q.view.size(1), queries = q.view.size(2), channels = q.view.size(3),
          keys = k.view.size(2), valueChannels = v.view.size(3);
  AttentionOptions attention;
  attention.scale = op.real("scale");
  if (attention.scale == 0)
    attention.scale = 1.0 / std::sqrt(static_cast<double>(channels));
  const std::optional<double> scales = (q.scale() * k.scale()).constant();
  attention.scale = attentionScale(op.state, attention.scale * scales.value_or(1), channels);
  if (scales)
    q.tensor().scale = k.tensor().scale = 1.0;
  attention.causal = op.integer("is_causal") != 0;
  if (attention.causal && queries != keys)
    return op.error("is causal with " + Twine(queries) + " queries and " + Twine(keys) +
                    " keys; expects equal numbers");
  if (double cap = op.real("softcap"); cap != 0)
    attention.softcap = cap;
  auto positionsFirst = [&](const ImportedValue &x) -> FailureOr<Value> {
    if (x.view.sampleAxis() > 0)
      return op.error("expects samples in dimension 0");
    return materialise(op.state, x, {x.view.dims[2], x.view.dims[1], x.view.dims[3]}, true);
  };
  auto qValue = positionsFirst(q), kValue = positionsFirst(k), vValue = positionsFirst(v);
  if (failed(qValue) || failed(kValue) || failed(vValue))
    return failure();
  // Repeated key heads need no copies.
  if (Groups kGroups = unrepeated(k), vGroups = unrepeated(v);
      !kGroups.empty() && !vGroups.empty() && k.view.dims[1].size() == v.view.dims[1].size() &&
      k.view.dims[1].back().size == v.view.dims[1].back().size) {
    kValue = materialise(op.state, k, kGroups, true);
    vValue = materialise(op.state, v, vGroups, true);
  }
  auto mask = attentionMask(op, q, keys, attention);
  if (failed(mask))
    return failure();
  Value y = create<AttentionOp>(op.state, *qValue, *kValue, *vValue, *mask, attention);
  ImportedValue result = wrap(y, q.type, {op.state.rows, queries, heads, valueChannels});
  result.tensor().scale = v.scale();
  for (FactorList &list : result.view.dims)
    coalesce(list);
  return outHeads(op, std::move(result), flat);
}

/// Looks up rows of a table by position.
static FailureOr<ImportedValue> rotaryTableAt(OpContext &op, const ImportedValue &table,
                                              const ImportedValue &ids) {
  if (!ids.isConstant() || !table.isConstant())
    return op.error("expects constant positions and tables");
  if (table.rank() != 2 || !isFloat(table.type) || isFloat(ids.type))
    return op.error(
        "expects integer positions and tables of floats by position and channel, found " +
        Twine(name(ids.type)) + " and rank " + Twine(table.rank()) + " of " + name(table.type));
  auto idValues = constantInts(ids);
  std::vector<int64_t> tableShape = table.shape();
  std::vector<int64_t> shape = ids.shape();
  shape.push_back(tableShape[1]);
  auto entries = constantFloats(table, int64_t(1) << 26);
  if (!idValues || !entries)
    return op.error("its tables are too large");
  std::vector<double> picked;
  for (int64_t id : *idValues) {
    if (id < 0 || id >= tableShape[0])
      return op.error("position " + Twine(id) + " is outside its tables");
    picked.insert(picked.end(), entries->begin() + id * tableShape[1],
                  entries->begin() + (id + 1) * tableShape[1]);
  }
  return constantOf(table.type, makeFloats(table.type, std::move(picked)), shape);
}

/// RotaryEmbedding of opset 23. The shape of x is [rows, heads, positions, channels] or
/// [rows, positions, heads * channels]. The shape of the tables is [rows, positions, channels / 2],
/// or they are indexed by position ids.
static LogicalResult importRotary(OpContext &op) {
  ImportedValue x = op.operand(0), cosine = op.operand(1), sine = op.operand(2);
  bool flat = x.rank() == 3;
  if (!x.isTensor() || !isFloat(x.type) || !isFloat(cosine.type) || !isFloat(sine.type))
    return op.error("expects float activations and tables");
  if (flat) {
    auto value = splitHeads(op, x, op.integer("num_heads"), "num_heads");
    if (failed(value))
      return failure();
    x = std::move(*value);
  }
  if (x.rank() != 4)
    return op.error("expects rank 3 or 4");
  int64_t positions = x.view.size(2), channels = x.view.size(3), heads = x.view.size(1);
  int64_t rotated = op.integer("rotary_embedding_dim");
  if (rotated == 0)
    rotated = channels;
  if (rotated < 2 || rotated > channels || rotated % 2)
    return op.error("expects an even rotary_embedding_dim within the channels");
  if (op.has(3)) // only constant ids (positions 0, 1, ... of every sample)
    for (ImportedValue *table : {&cosine, &sine}) {
      auto picked = rotaryTableAt(op, *table, op.operand(3));
      if (failed(picked))
        return failure();
      *table = std::move(*picked);
    }
  auto tableOf = [&](ImportedValue table) -> FailureOr<Value> {
    if (table.rank() == 2)
      table.view.dims.insert(table.view.dims.begin(), FactorList{});
    if (table.rank() != 3 || table.view.size(1) != positions || table.view.size(2) != rotated / 2)
      return op.error("expects tables of " + Twine(positions) + " positions by " +
                      Twine(rotated / 2) + " channels");
    table = compressed(op.state, table);
    if (!isBatched(table)) {
      for (const Factor &factor : table.view.dims[0])
        if (factor.stride != 0)
          return op.error("its tables differ between samples");
      table.view.dims[0].clear();
    }
    return materialise(op.state, table, {table.view.dims[1], table.view.dims[2]}, false);
  };
  auto c = tableOf(cosine), s = tableOf(sine);
  if (failed(c) || failed(s))
    return failure();
  const Number scale = x.takeScale();
  Value value = materialise(op.state, x, {x.view.dims[2], x.view.dims[1], x.view.dims[3]}, true);
  bool interleaved = op.integer("interleaved") != 0;
  Value y;
  if (rotated == channels) {
    y = create<RopeOp>(op.state, value, *c, *s, interleaved, false);
  } else {
    Value front = create<SliceOp>(op.state, value, int64_t(3), int64_t(0), rotated),
          back = create<SliceOp>(op.state, value, int64_t(3), rotated, channels - rotated);
    y = create<ConcatOp>(
        op.state, ValueRange{create<RopeOp>(op.state, front, *c, *s, interleaved, false), back},
        int64_t(3));
  }
  ImportedValue result = wrap(y, x.type, {op.state.rows, positions, heads, channels});
  result.tensor().scale = scale;
  return outHeads(op, std::move(result), flat);
}

void zorse::onnx_import::registerAttentionOps(OperatorRegistry &registry) {
  registry.add({
      // Softmax uses the compute type of the model. The mode selects the content of the fourth
      // output, which must be unused.
      {{"Attention"},
       3,
       7,
       {integer("is_causal", 0), integer("kv_num_heads", 0), integer("q_num_heads", 0),
        real("scale", 0), real("softcap", 0), ignored(integer("softmax_precision")),
        ignored(integer("qk_matmul_output_mode")), only(integer("left_window_size"), {"-1"}),
        only(integer("right_window_size"), {"-1"})},
       importAttention},
      {{"RotaryEmbedding"},
       3,
       4,
       {integer("interleaved", 0), integer("num_heads", 0), integer("rotary_embedding_dim", 0)},
       importRotary},
  });
}
