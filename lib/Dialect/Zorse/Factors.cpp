// How the dimensions of every op relate.
#include "zorse/Dialect/Zorse/ZorseOps.h"

#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace zorse;

using Kind = FactorKind;

namespace {
/// Collects factors; dimensions of size 1 have none.
struct FactorBuilder {
  explicit FactorBuilder(Operation *op) {
    for (Value operand : op->getOperands())
      result.operands.emplace_back(rankOf(operand));
    for (Value value : op->getResults())
      result.results.emplace_back(rankOf(value));
  }
  static size_t rankOf(Value value) {
    auto type = dyn_cast<RankedTensorType>(value.getType());
    return type ? type.getRank() : 0;
  }
  unsigned add(Kind kind, int64_t size) {
    result.factors.push_back({kind, size});
    return result.factors.size() - 1;
  }
  OpFactors result;
};
} // namespace

static ArrayRef<int64_t> shapeOf(Value value) { return cast<RankedTensorType>(value.getType()).getShape(); }

/// Operands and results of one shape (scalars beside them relate to nothing): dimension by dimension, the last `indivisible` ones needed whole.
static OpFactors elementwise(Operation *op, int64_t indivisible = 0) {
  FactorBuilder builder(op);
  Value model = op->getNumResults() ? op->getResult(0) : op->getOperand(0);
  auto type = dyn_cast<RankedTensorType>(model.getType());
  for (int64_t i = 0; type && i < type.getRank(); ++i) {
    unsigned factor = builder.add(i >= type.getRank() - indivisible ? Kind::Indivisible : Kind::Parallel, type.getDimSize(i));
    auto attach = [&](OpFactors::Value &dimensions, Value value) {
      // Shorter ones are statistics (leading dimensions) or channels (the last dimension).
      auto other = dyn_cast<RankedTensorType>(value.getType());
      if (!other)
        return;
      if (i < other.getRank() && other.getShape().take_front(i + 1) == type.getShape().take_front(i + 1))
        dimensions[i] = {factor};
      else if (i == type.getRank() - 1 && other.getRank() == 1 && other.getDimSize(0) == type.getDimSize(i))
        dimensions[0] = {factor};
    };
    for (auto [dimensions, value] : llvm::zip(builder.result.operands, op->getOperands()))
      attach(dimensions, value);
    for (auto [dimensions, value] : llvm::zip(builder.result.results, op->getResults()))
      attach(dimensions, value);
  }
  return builder.result;
}

/// Gradients of channels: like the norm they belong to, with every dimension but the last reduced.
static OpFactors channelGradients(Operation *op, Value x) {
  FactorBuilder builder(op);
  int64_t rank = shapeOf(x).size();
  for (int64_t i = 0; i < rank; ++i) {
    unsigned factor = builder.add(i + 1 == rank ? Kind::Parallel : Kind::Reduced, shapeOf(x)[i]);
    for (auto &dimensions : builder.result.operands)
      if (i < static_cast<int64_t>(dimensions.size()))
        dimensions[i] = {factor};
    if (i + 1 == rank)
      for (auto &dimensions : builder.result.results)
        dimensions[0] = {factor};
  }
  return builder.result;
}

static OpFactors reshapeFactors(ReshapeOp op) {
  FactorBuilder builder(op);
  ArrayRef<int64_t> a = shapeOf(op.getX()), b = shapeOf(op.getY());
  auto &x = builder.result.operands[0], &y = builder.result.results[0];
  size_t i = 0, j = 0;
  if (carriesSamples(op.getX().getType())) {
    x[0] = y[0] = {builder.add(Kind::Parallel, ShapedType::kDynamic)};
    i = j = 1;
  }
  // Both shapes as products, outermost first: split off the smaller remainder while it divides the larger.
  int64_t left = 1, right = 1;
  while (true) {
    while (left == 1 && i < a.size())
      left = a[i++];
    while (right == 1 && j < b.size())
      right = b[j++];
    if (left == 1 || right == 1)
      return builder.result;
    int64_t common = std::min(left, right);
    if (std::max(left, right) % common != 0) {
      // 6 x 4 to 8 x 3: no common factors in order. The rest is needed together.
      unsigned rest = builder.add(Kind::Indivisible, left);
      for (size_t k = i - 1; k < a.size(); ++k)
        x[k].push_back(k == i - 1 ? rest : builder.add(Kind::Indivisible, a[k]));
      rest = builder.add(Kind::Indivisible, right);
      for (size_t k = j - 1; k < b.size(); ++k)
        y[k].push_back(k == j - 1 ? rest : builder.add(Kind::Indivisible, b[k]));
      return builder.result;
    }
    unsigned factor = builder.add(Kind::Parallel, common);
    x[i - 1].push_back(factor);
    y[j - 1].push_back(factor);
    left /= common;
    right /= common;
  }
}

static OpFactors matmulFactors(MatmulOp op) {
  FactorBuilder builder(op);
  auto &a = builder.result.operands[0], &b = builder.result.operands[1], &y = builder.result.results[0];
  size_t rank = a.size();
  bool batched = b.size() > 2;
  for (size_t i = 0; i + 2 < rank; ++i) {
    a[i] = y[i] = {builder.add(Kind::Parallel, shapeOf(op.getA())[i])};
    if (batched)
      b[i] = a[i];
  }
  size_t m = op.getTransposeA() ? rank - 1 : rank - 2, k = op.getTransposeA() ? rank - 2 : rank - 1;
  size_t n = op.getTransposeB() ? b.size() - 2 : b.size() - 1, kOfB = op.getTransposeB() ? b.size() - 1 : b.size() - 2;
  a[m] = y[rank - 2] = {builder.add(Kind::Parallel, shapeOf(op.getA())[m])};
  b[n] = y[rank - 1] = {builder.add(Kind::Parallel, shapeOf(op.getB())[n])};
  a[k] = b[kOfB] = {builder.add(Kind::Reduced, shapeOf(op.getA())[k])};
  return builder.result;
}

/// q [r, s, h' g, d], k [r, t, h', d], v [r, t, h', e] -> out [r, s, h' g, e]; the gradients likewise, by position in `roles`.
static OpFactors attentionFactors(Operation *op, ArrayRef<char> operandRoles, ArrayRef<char> resultRoles, Value q, Value k, Value v) {
  FactorBuilder builder(op);
  int64_t keyHeads = shapeOf(k)[2], groups = shapeOf(q)[2] / keyHeads;
  bool gradient = resultRoles.size() == 3;
  unsigned r = builder.add(Kind::Parallel, shapeOf(q)[0]);
  unsigned s = builder.add(gradient ? Kind::Indivisible : Kind::Parallel, shapeOf(q)[1]);
  unsigned t = builder.add(Kind::Indivisible, shapeOf(k)[1]);
  unsigned h = builder.add(Kind::Parallel, keyHeads);
  unsigned d = builder.add(Kind::Indivisible, shapeOf(q)[3]);
  unsigned e = builder.add(gradient ? Kind::Indivisible : Kind::Parallel, shapeOf(v)[3]);
  OpFactors::Dimension heads{h};
  if (groups > 1)
    heads.push_back(builder.add(gradient ? Kind::Indivisible : Kind::Parallel, groups));
  auto fill = [&](OpFactors::Value &value, char role, Value of) {
    switch (role) {
    case 'q':
      value = {{r}, {s}, heads, {d}};
      break;
    case 'k':
      value = {{r}, {t}, {h}, {d}};
      break;
    case 'v':
      value = {{r}, {t}, {h}, {e}};
      break;
    case 'o':
      value = {{r}, {s}, heads, {e}};
      break;
    case 'l':
      value = {{r}, heads, {s}};
      if (cast<RankedTensorType>(of.getType()).getRank() == 4)
        value.push_back({}); // the greatest score and the sum
      break;
    default: // a mask: dimensions of size 1 relate to nothing
      value = {carriesSamples(of.getType()) ? OpFactors::Dimension{r} : OpFactors::Dimension{},
               shapeOf(of)[1] == 1 ? OpFactors::Dimension{} : heads,
               {s},
               {t}};
    }
  };
  for (size_t i = 0; i < op->getNumOperands(); ++i)
    fill(builder.result.operands[i], i < operandRoles.size() ? operandRoles[i] : 'm', op->getOperand(i));
  for (size_t i = 0; i < op->getNumResults(); ++i)
    fill(builder.result.results[i], resultRoles[i], op->getResult(i));
  return builder.result;
}

static OpFactors transposeFactors(TransposeOp op) {
  FactorBuilder builder(op);
  auto &x = builder.result.operands[0], &y = builder.result.results[0];
  for (auto [i, from] : llvm::enumerate(op.getPermutation()))
    y[i] = x[from] = {builder.add(Kind::Parallel, shapeOf(op.getX())[from])};
  return builder.result;
}

static OpFactors sliceFactors(SliceOp op) {
  FactorBuilder builder(op);
  auto &x = builder.result.operands[0], &y = builder.result.results[0];
  for (size_t i = 0; i < y.size(); ++i) {
    int64_t from = shapeOf(op.getX())[i], to = shapeOf(op.getY())[i];
    if (from == to)
      y[i] = x[i] = {builder.add(Kind::Parallel, from)};
    else
      x[i] = {builder.add(Kind::Indivisible, from)}, y[i] = {builder.add(Kind::Indivisible, to)};
  }
  return builder.result;
}

static OpFactors concatFactors(ConcatOp op) {
  FactorBuilder builder(op);
  auto &operands = builder.result.operands;
  auto &y = builder.result.results[0];
  for (size_t i = 0; i < y.size(); ++i) {
    bool joined = i == op.getDim();
    y[i] = {builder.add(joined ? Kind::Indivisible : Kind::Parallel, shapeOf(op.getY())[i])};
    for (size_t k = 0; k < operands.size(); ++k)
      operands[k][i] = joined ? OpFactors::Dimension{builder.add(Kind::Indivisible, shapeOf(op.getXs()[k])[i])} : y[i];
  }
  return builder.result;
}

static OpFactors broadcastFactors(BroadcastOp op) {
  FactorBuilder builder(op);
  auto &x = builder.result.operands[0], &y = builder.result.results[0];
  for (size_t i = 0; i < y.size(); ++i)
    y[i] = {builder.add(Kind::Parallel, shapeOf(op.getY())[i])};
  for (auto [i, to] : llvm::enumerate(op.getDims()))
    x[i] = y[to];
  return builder.result;
}

static OpFactors reduceFactors(ReduceOp op) {
  FactorBuilder builder(op);
  auto &x = builder.result.operands[0], &y = builder.result.results[0];
  size_t next = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    bool reduced = llvm::is_contained(op.getDims(), static_cast<int64_t>(i));
    x[i] = {builder.add(reduced ? Kind::Reduced : Kind::Parallel, shapeOf(op.getX())[i])};
    if (!reduced)
      y[next++] = x[i];
  }
  return builder.result;
}

static OpFactors contractFactors(ContractOp op) {
  FactorBuilder builder(op);
  auto &operands = builder.result.operands;
  auto &y = builder.result.results[0];
  size_t last = operands[0].size() - 1;
  for (size_t i = 0; i < last; ++i)
    operands[0][i] = operands[1][i] = {builder.add(Kind::Reduced, shapeOf(op.getA())[i])};
  y[0] = operands[0][last] = {builder.add(Kind::Parallel, shapeOf(op.getA())[last])};
  y[1] = operands[1][last] = {builder.add(Kind::Parallel, shapeOf(op.getB())[last])};
  return builder.result;
}

/// gather: table [V, c...], ids [l...] -> [l..., c...]; scatter_add turns it around, summing over l.
static OpFactors gatherFactors(Operation *op) {
  FactorBuilder builder(op);
  auto &operands = builder.result.operands;
  auto &y = builder.result.results[0];
  bool gather = isa<GatherOp>(op);
  auto &ids = operands[gather ? 1 : 0], &table = gather ? operands[0] : y, &rows = gather ? y : operands[1];
  Value tableValue = gather ? op->getOperand(0) : op->getResult(0);
  table[0] = {builder.add(Kind::Indivisible, shapeOf(tableValue)[0])};
  for (size_t i = 0; i < ids.size(); ++i)
    ids[i] = rows[i] = {builder.add(gather ? Kind::Parallel : Kind::Reduced, shapeOf(op->getOperand(gather ? 1 : 0))[i])};
  for (size_t i = 1; i < table.size(); ++i)
    table[i] = rows[ids.size() + i - 1] = {builder.add(Kind::Parallel, shapeOf(tableValue)[i])};
  return builder.result;
}

/// take, take_grad, cross_entropy and its gradient: [l..., V] with [l...] beside it.
static OpFactors takeFactors(Operation *op) {
  FactorBuilder builder(op);
  Value wide = isa<TakeGradOp>(op) ? op->getResult(0) : isa<CrossEntropyGradOp>(op) ? op->getOperand(1) : op->getOperand(0);
  Value statistics; // [l..., 2]
  if (auto loss = dyn_cast<CrossEntropyOp>(op))
    statistics = loss.getStatistics();
  else if (auto gradient = dyn_cast<CrossEntropyGradOp>(op))
    statistics = gradient.getStatistics();
  size_t last = shapeOf(wide).size() - 1;
  for (size_t i = 0; i <= last; ++i) {
    unsigned factor = builder.add(i == last ? Kind::Indivisible : Kind::Parallel, shapeOf(wide)[i]);
    auto attach = [&](OpFactors::Value &value, Value of) {
      if (i < value.size() && (i < last || (value.size() == last + 1 && of != statistics)))
        value[i] = {factor};
    };
    for (auto [value, operand] : llvm::zip(builder.result.operands, op->getOperands())) {
      bool weights = isa<CrossEntropyOp, CrossEntropyGradOp>(op) && operand == op->getOperands().back() &&
                     op->getNumOperands() == (isa<CrossEntropyOp>(op) ? 3 : 5);
      if (!weights)
        attach(value, operand);
      else if (i == last)
        value[0] = {factor};
    }
    for (auto [value, result] : llvm::zip(builder.result.results, op->getResults()))
      attach(value, result);
  }
  return builder.result;
}

OpFactors zorse::detail::computeFactors(Operation *op) {
  return TypeSwitch<Operation *, OpFactors>(op)
      .Case<ReshapeOp>(reshapeFactors)
      .Case<MatmulOp>(matmulFactors)
      .Case<TransposeOp>(transposeFactors)
      .Case<SliceOp>(sliceFactors)
      .Case<ConcatOp>(concatFactors)
      .Case<BroadcastOp>(broadcastFactors)
      .Case<ReduceOp>(reduceFactors)
      .Case<ContractOp>(contractFactors)
      .Case<GatherOp, ScatterAddOp>(gatherFactors)
      .Case<TakeOp, TakeGradOp, CrossEntropyOp, CrossEntropyGradOp>(takeFactors)
      .Case<SoftmaxOp, LogSoftmaxOp, SoftmaxGradOp, LogSoftmaxGradOp, LayerNormOp, LayerNormGradInputOp, RmsNormOp, RmsNormGradInputOp>(
          [](Operation *op) { return elementwise(op, 1); })
      .Case<LayerNormGradParamsOp, RmsNormGradParamsOp>([](auto op) { return channelGradients(op, op.getX()); })
      .Case<RopeOp>([](RopeOp op) {
        // cos and sin have positions but no heads: tie their dimensions by role.
        OpFactors factors = elementwise(op, 1);
        bool sampled = carriesSamples(op.getCos().getType());
        for (auto &table : llvm::drop_begin(factors.operands))
          table = sampled ? OpFactors::Value{{0}, {1}, {}} : OpFactors::Value{{1}, {}};
        return factors;
      })
      .Case<AttentionOp>([](AttentionOp op) { return attentionFactors(op, {'q', 'k', 'v'}, {'o', 'l'}, op.getQ(), op.getK(), op.getV()); })
      .Case<AttentionGradOp>(
          [](AttentionGradOp op) { return attentionFactors(op, {'o', 'q', 'k', 'v', 'o', 'l'}, {'q', 'k', 'v'}, op.getQ(), op.getK(), op.getV()); })
      .Default([](Operation *op) { return elementwise(op); });
}

std::string zorse::toString(const OpFactors &factors) {
  std::string text;
  llvm::raw_string_ostream os(text);
  auto name = [](unsigned factor) { return std::string(1, static_cast<char>(factor < 18 ? 'i' + factor : 'a' + factor - 18)); };
  auto printAll = [&](ArrayRef<OpFactors::Value> values) {
    os << '(';
    llvm::interleaveComma(values, os, [&](const OpFactors::Value &value) {
      os << '[';
      llvm::interleaveComma(value, os, [&](const OpFactors::Dimension &dimension) {
        if (dimension.empty())
          os << '_';
        for (unsigned factor : dimension)
          os << name(factor);
      });
      os << ']';
    });
    os << ')';
  };
  printAll(factors.operands);
  os << " -> ";
  printAll(factors.results);
  for (auto [kind, word] :
       {std::pair(Kind::Parallel, "parallel"), std::pair(Kind::Reduced, "reduced"), std::pair(Kind::Indivisible, "indivisible")}) {
    bool first = true;
    for (size_t i = 0; i < factors.factors.size(); ++i)
      if (factors.factors[i].kind == kind)
        os << (first ? std::string(" ") + word + ":" : "") << ' ' << name(i), first = false;
  }
  return text;
}
