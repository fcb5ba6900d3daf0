// Builds the function of one device of a group.
#include "ChooseOps.h"

#include "DivideByIds.h"

#include "zorse/Dialect/Zorse/ZorseOps.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace zorse;
using namespace zorse::sharding;

static RankedTensorType withShare(RankedTensorType type, const ShardedDim &sharded, Share share) {
  SmallVector<int64_t> shape(type.getShape());
  shape[sharded.dim] = sharded.map.width() * share.count();
  return RankedTensorType::get(shape, type.getElementType());
}

RankedTensorType sharding::localType(Value value, const ClassSharding &sharding,
                                     ArrayRef<Share> shares) {
  auto type = cast<RankedTensorType>(value.getType());
  auto it = sharding.values.find(value);
  return it == sharding.values.end() ? type
                                     : withShare(type, it->second.dim, shares[it->second.axis]);
}

namespace {

class Instance {
public:
  Instance(func::FuncOp joint, const ClassSharding &sharding, ArrayRef<std::vector<Share>> all,
           size_t device)
      : joint(joint), sharding(sharding), all(all), device(device), builder(joint.getContext()) {
    for (const std::vector<Share> &axis : all)
      mine.push_back(axis[device]);
  }

  OwningOpRef<func::FuncOp> build() {
    SmallVector<Type> arguments, results;
    for (BlockArgument argument : joint.getArguments())
      arguments.push_back(localType(argument, sharding, mine));
    for (auto [i, type] : llvm::enumerate(joint.getResultTypes())) {
      BlockArgument parameter = parameterOfGradient(joint, i);
      results.push_back(parameter ? localType(parameter, sharding, mine) : type);
    }
    OwningOpRef<func::FuncOp> function = func::FuncOp::create(
        joint.getLoc(), joint.getName(), builder.getFunctionType(arguments, results));
    function->setAllArgAttrs(joint.getAllArgAttrs());
    function->setAllResultAttrs(joint.getAllResultAttrs());
    builder.setInsertionPointToEnd(function->addEntryBlock());
    for (auto [argument, to] : llvm::zip(joint.getArguments(), function->getArguments()))
      held[argument] = to;
    for (Operation &op : joint.getBody().front().without_terminator()) {
      build(op);
      for (Value value : op.getResults())
        exchange(value);
    }
    SmallVector<Value> returned;
    for (OpOperand &operand : joint.getBody().front().getTerminator()->getOpOperands())
      returned.push_back(returnedValue(operand));
    func::ReturnOp::create(builder, joint.getLoc(), returned);
    return function;
  }

private:
  void build(Operation &op);
  void buildDivided(Operation &op, const DividedOp &divided);
  void placeRandomNumbers(Operation &op, Operation *copy, const OpFactors &rule,
                          const DividedOp &divided);
  void exchange(Value value);
  Value gather(Value value);
  Value returnedValue(OpOperand &operand);
  Value padded(Value value, const ShardedValue &sharded);
  Value slice(Value whole, const ShardedDim &sharded, Share share);
  void buildSlice(SliceOp op, const ShardedValue &x, RankedTensorType type);

  /// Returns all of a value, behind its exchange if it has one.
  Value wholeOf(Value value) const {
    auto it = whole.find(value);
    return it == whole.end() ? held.lookup(value) : it->second;
  }
  bool isPartial(Operation &op) const {
    return op.getNumResults() && sharding.partial.contains(op.getResult(0));
  }

  func::FuncOp joint;
  const ClassSharding &sharding;
  ArrayRef<std::vector<Share>> all;
  const size_t device;
  SmallVector<Share> mine; ///< by axis
  int64_t exchanges = 0;
  OpBuilder builder;
  DenseMap<Value, Value> held;  ///< what the device has without an exchange
  DenseMap<Value, Value> whole; ///< results of exchanges
};

void Instance::build(Operation &op) {
  if (auto it = sharding.ops.find(&op); it != sharding.ops.end())
    return buildDivided(op, it->second);
  Operation *copy = builder.clone(op);
  for (OpOperand &operand : op.getOpOperands())
    copy->setOperand(operand.getOperandNumber(),
                     isPartial(op) ? held.lookup(operand.get()) : wholeOf(operand.get()));
  for (auto [from, to] : llvm::zip(op.getResults(), copy->getResults()))
    held[from] = to;
}

void Instance::buildDivided(Operation &op, const DividedOp &divided) {
  const Share share = mine[divided.axis];
  const int64_t granules = sharding.axes[divided.axis].granules;
  if (share.count() == 0 && !combines(&op)) { // no points: sums over them are zero
    for (Value value : op.getResults())
      held[value] = createSplat(builder, op.getLoc(), localType(value, sharding, mine), 0);
    return;
  }
  if (op.getNumOperands() == 0) { // a constant
    Operation *copy = builder.clone(op);
    held[op.getResult(0)] =
        slice(copy->getResult(0), sharding.values.lookup(op.getResult(0)).dim, share);
    return;
  }
  OpFactors rule = cast<FactorsOpInterface>(op).getFactors();
  if (auto sliced = dyn_cast<SliceOp>(op)) {
    if (auto x = sharding.values.find(sliced.getX());
        x != sharding.values.end() && x->second.axis == divided.axis)
      return buildSlice(sliced, x->second, localType(sliced.getY(), sharding, mine));
    Value cut = SliceOp::create(builder, op.getLoc(), wholeOf(sliced.getX()), sliced.getOffsets(),
                                sliced.getSizes(), sliced.getStrides());
    held[sliced.getY()] = slice(cut, sharding.values.lookup(sliced.getY()).dim, share);
    return;
  }
  SmallVector<Value> operands;
  for (auto [value, dims] : llvm::zip(op.getOperands(), rule.operands)) {
    ShardedDim wanted;
    auto it = sharding.values.find(value);
    if (projectSplit(rule, dims, divided.split, granules, wanted) == MapStatus::None)
      operands.push_back(wholeOf(value));
    else if (it != sharding.values.end() && it->second.axis == divided.axis)
      operands.push_back(held.lookup(value));
    else
      operands.push_back(slice(wholeOf(value), wanted, share));
  }
  for (const OpFactors::Offset &offset : rule.offsets)
    if (const GranuleMap *map = divided.split.find(offset.factor); map && offset.operand) {
      PartByIds part{operands, share.begin * map->width(), share.count() * map->width(),
                     device,   all[divided.axis].size(),   0};
      if (combines(&op))
        part.exchange = exchanges++;
      for (auto [from, to] : llvm::zip(op.getResults(), buildByIds(builder, &op, part)))
        held[from] = to;
      return;
    }
  Operation *copy = builder.clone(op);
  copy->setOperands(operands);
  for (auto [from, to] : llvm::zip(op.getResults(), copy->getResults())) {
    to.setType(localType(from, sharding, mine));
    held[from] = to;
  }
  placeRandomNumbers(op, copy, rule, divided);
}

/// Random numbers are those of the undivided op: sets where the device's heads or elements begin.
void Instance::placeRandomNumbers(Operation &op, Operation *copy, const OpFactors &rule,
                                  const DividedOp &divided) {
  const int64_t begin = mine[divided.axis].begin, granules = sharding.axes[divided.axis].granules;
  auto firstPoint = [&](const OpFactors::Value &value, ShardedDim &dim) {
    const bool found = projectSplit(rule, value, divided.split, granules, dim) == MapStatus::Found;
    return found ? begin * dim.map.width() : 0;
  };
  ShardedDim dim;
  auto setFirstHead = [&](auto attention, const OpFactors::Value &queries) {
    if (const int64_t first = firstPoint(queries, dim);
        first > 0 && !attention.getDropout().isZero())
      attention.setFirstHeadAttr(builder.getI64IntegerAttr(first));
  };
  if (auto attention = dyn_cast<AttentionOp>(copy))
    return setFirstHead(attention, rule.operands[0]);
  if (auto attention = dyn_cast<AttentionGradOp>(copy))
    return setFirstHead(attention, rule.operands[1]);
  auto dropout = dyn_cast<DropoutOp>(copy);
  if (!dropout)
    return;
  auto whole = cast<RankedTensorType>(op.getResult(0).getType());
  const auto rank = static_cast<size_t>(whole.getRank());
  SmallVector<int64_t> element(rank + 1, 0);
  int64_t stride = 1;
  for (size_t d = rank; d-- > 0;) {
    element[d + 1] = stride;
    stride *= whole.isDynamicDim(d) ? 1 : whole.getDimSize(d);
  }
  element[0] = firstPoint(rule.results[0], dim) * element[dim.dim + 1];
  dropout.setElement(element);
}

/// A slice of a sharded value begins behind the device's points of earlier segments.
void Instance::buildSlice(SliceOp op, const ShardedValue &x, RankedTensorType type) {
  SmallVector<int64_t> offsets(op.getOffsets());
  int64_t &offset = offsets[x.dim.dim], local = 0;
  for (const GranuleMap::Segment &segment : x.dim.map.segments)
    if (segment.begin < offset)
      local += segment.width * mine[x.axis].count();
  offset = local;
  held[op.getY()] = SliceOp::create(builder, op.getLoc(), held.lookup(op.getX()), offsets,
                                    type.getShape(), op.getStrides());
}

/// Returns a device's points of a whole value.
Value Instance::slice(Value value, const ShardedDim &sharded, Share share) {
  SmallVector<Value> parts;
  for (const GranuleMap::Segment &segment : sharded.map.segments)
    parts.push_back(SliceOp::create(builder, value.getLoc(), value, sharded.dim,
                                    segment.begin + share.begin * segment.width,
                                    share.count() * segment.width));
  if (parts.size() == 1)
    return parts.front();
  return ConcatOp::create(builder, value.getLoc(),
                          withShare(cast<RankedTensorType>(value.getType()), sharded, share), parts,
                          sharded.dim);
}

void Instance::exchange(Value value) {
  if (sharding.reduced.contains(value))
    whole[value] = AllReduceOp::create(builder, value.getLoc(), value.getType(), exchanges++,
                                       held.lookup(value));
  else if (sharding.gathered.contains(value))
    whole[value] = gather(value);
}

/// Gathers the parts of all devices. The dimension consists of segments, and these of the granules
/// of the devices.
Value Instance::gather(Value value) {
  const ShardedValue &sharded = sharding.values.find(value)->second;
  const std::vector<Share> &shares = all[sharded.axis];
  const unsigned dim = sharded.dim.dim;
  SmallVector<Type> types;
  for (const Share &share : shares)
    types.push_back(withShare(cast<RankedTensorType>(value.getType()), sharded.dim, share));
  auto parts =
      AllGatherOp::create(builder, value.getLoc(), types, exchanges++, held.lookup(value), device)
          .getParts();
  SmallVector<Value> pieces;
  SmallVector<int64_t> taken(shares.size(), 0);
  for (const GranuleMap::Segment &segment : sharded.dim.map.segments)
    for (auto [d, share] : llvm::enumerate(shares))
      if (const int64_t points = segment.width * share.count(); points > 0) {
        pieces.push_back(SliceOp::create(builder, value.getLoc(), parts[d], dim, taken[d], points));
        taken[d] += points;
      }
  return pieces.size() == 1
             ? pieces.front()
             : ConcatOp::create(builder, value.getLoc(), cast<RankedTensorType>(value.getType()),
                                pieces, dim);
}

/// A gradient is divided as its parameter. The gradient of a whole parameter may be partial: each
/// device has a summand, or its part, with zeros for those of others.
Value Instance::returnedValue(OpOperand &operand) {
  BlockArgument parameter = parameterOfGradient(joint, operand.getOperandNumber());
  if (!parameter)
    return wholeOf(operand.get());
  auto stored = sharding.values.find(parameter), computed = sharding.values.find(operand.get());
  if (stored == sharding.values.end() && computed != sharding.values.end())
    return padded(operand.get(), computed->second);
  if (stored == sharding.values.end() || computed != sharding.values.end())
    return held.lookup(operand.get());
  const Share share = mine[stored->second.axis];
  if (share.count() == 0)
    return createSplat(builder, joint.getLoc(), localType(parameter, sharding, mine), 0);
  return slice(wholeOf(operand.get()), stored->second.dim, share);
}

/// Returns the device's part of a value at its place in a value of zeros.
Value Instance::padded(Value value, const ShardedValue &sharded) {
  auto type = cast<RankedTensorType>(value.getType());
  const unsigned dim = sharded.dim.dim;
  const Share share = mine[sharded.axis];
  SmallVector<Value> pieces;
  int64_t position = 0, taken = 0;
  auto fill = [&](int64_t until) {
    SmallVector<int64_t> shape(type.getShape());
    shape[dim] = until - position;
    if (until > position)
      pieces.push_back(createSplat(builder, value.getLoc(),
                                   RankedTensorType::get(shape, type.getElementType()), 0));
  };
  for (const GranuleMap::Segment &segment : sharded.dim.map.segments) {
    const int64_t points = segment.width * share.count(),
                  begin = segment.begin + share.begin * segment.width;
    if (points == 0)
      continue;
    fill(begin);
    pieces.push_back(
        SliceOp::create(builder, value.getLoc(), held.lookup(value), dim, taken, points));
    taken += points;
    position = begin + points;
  }
  fill(type.getDimSize(dim));
  return pieces.size() == 1 ? pieces.front()
                            : ConcatOp::create(builder, value.getLoc(), type, pieces, dim);
}

} // namespace

OwningOpRef<func::FuncOp> sharding::instantiate(func::FuncOp joint, const ClassSharding &sharding,
                                                ArrayRef<std::vector<Share>> shares,
                                                size_t device) {
  return Instance(joint, sharding, shares, device).build();
}
