#include "LogitsFunction.h"

#include "zorse/Dialect/Zorse/ZorseOps.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/IRMapping.h"

using namespace mlir;
using namespace zorse;
using namespace zorse::units;

namespace {

/// Clones the computation of logits into a separate function. It selects one position of the
/// sequence as early as this is known to give the same result: after the inputs of a product with a
/// parameter, and through elementwise operations.
class LogitsBuilder {
public:
  LogitsBuilder(OpBuilder &builder, IRMapping &mapping, Value position, int64_t sequence)
      : builder(builder), mapping(mapping), position(position), sequence(sequence) {}

  /// Clones [?, ...] unchanged.
  Value whole(Value value) {
    if (Value known = mapping.lookupOrNull(value))
      return known;
    Operation *op = value.getDefiningOp();
    for (Value operand : op->getOperands())
      whole(operand);
    builder.clone(*op, mapping);
    return mapping.lookup(value);
  }

  /// Clones [?, S, ...] at the position, as [?, 1, ...]. Null if this is not possible.
  Value atPosition(Value value) {
    Operation *op = value.getDefiningOp();
    Location loc = value.getLoc();
    auto type = cast<RankedTensorType>(value.getType());
    if (!op)
      return pick(value);
    if (auto product = dyn_cast<MatmulOp>(op); product && isPerPosition(product)) {
      Value a = atPosition(product.getA());
      return a ? MatmulOp::create(builder, loc, a, whole(product.getB()), product.getTransposeA(),
                                  product.getTransposeB())
               : Value();
    }
    // Labels or logits that the graph has shifted: the slice cuts off its input at the end, so
    // position i is position i of its input.
    if (auto slice = dyn_cast<SliceOp>(op); slice && isPrefix(slice))
      return atPosition(slice.getX());
    if (auto broadcast = dyn_cast<BroadcastOp>(op);
        broadcast && !llvm::is_contained(broadcast.getDims(), 1))
      return BroadcastOp::create(builder, loc, one(type), whole(broadcast.getX()),
                                 broadcast.getDims());
    bool elementwise = op->getNumResults() == 1 && op->getNumOperands() > 0 &&
                       (op->hasTrait<OpTrait::Elementwise>() || op->hasTrait<IsActivation>() ||
                        isa<RoundOp, DetachOp>(op)) &&
                       llvm::all_of(op->getOperandTypes(), [&](Type operand) {
                         auto ranked = dyn_cast<RankedTensorType>(operand);
                         return ranked && ranked.getShape() == type.getShape();
                       });
    if (!elementwise)
      return pick(value);
    IRMapping operands;
    for (Value operand : op->getOperands()) {
      Value selected = atPosition(operand);
      if (!selected)
        return {};
      operands.map(operand, selected);
    }
    Operation *clone = builder.clone(*op, operands);
    clone->getResult(0).setType(one(type));
    return clone->getResult(0);
  }

private:
  static bool isPerPosition(MatmulOp op) {
    auto a = cast<RankedTensorType>(op.getA().getType()),
         b = cast<RankedTensorType>(op.getB().getType());
    return a.getRank() == 3 && b.getRank() == 2 && !op.getTransposeA();
  }
  static bool isPrefix(SliceOp op) {
    auto x = cast<RankedTensorType>(op.getX().getType());
    return x.getRank() >= 2 &&
           llvm::all_of(op.getOffsets(), [](int64_t offset) { return offset == 0; }) &&
           llvm::all_of(op.getStrides(), [](int64_t stride) { return stride == 1; }) &&
           op.getSizes().drop_front(2) == x.getShape().drop_front(2);
  }
  static RankedTensorType one(RankedTensorType type) {
    SmallVector<int64_t> shape(type.getShape());
    shape[1] = 1;
    return type.clone(shape);
  }

  Value pick(Value value) {
    auto type = cast<RankedTensorType>(value.getType());
    if (type.getRank() != 3 || type.getDimSize(1) > sequence)
      return {};
    Location loc = value.getLoc();
    Value turned = TransposeOp::create(builder, loc, whole(value), ArrayRef<int64_t>{0, 2, 1});
    auto ids =
        RankedTensorType::get({ShapedType::kDynamic, type.getDimSize(2)}, builder.getI64Type());
    Value taken = TakeAlongDimOp::create(
        builder, loc, turned,
        BroadcastOp::create(builder, loc, ids, position, ArrayRef<int64_t>{0}));
    return ReshapeOp::create(builder, loc, taken,
                             ArrayRef<int64_t>{ShapedType::kDynamic, 1, type.getDimSize(2)});
  }

  OpBuilder &builder;
  IRMapping &mapping;
  Value position;
  int64_t sequence;
};

} // namespace

FailureOr<func::FuncOp> units::buildLogits(OpBuilder &builder, func::FuncOp forward,
                                           int64_t inputs) {
  CrossEntropyOp loss;
  for (Operation &op : forward.getBody().front())
    if (auto found = dyn_cast<CrossEntropyOp>(op); found && !loss)
      loss = found;
  constexpr const char *kRemedy = "; leave out --with-generation";
  if (!loss) {
    emitError(forward.getLoc()) << "--with-generation: the model's last unit computes no "
                                   "cross-entropy of logits; text generation needs it"
                                << kRemedy;
    return failure();
  }
  auto logits = cast<RankedTensorType>(loss.getLogits().getType());
  if (logits.getRank() != 3) {
    emitError(loss.getLoc())
        << "--with-generation: expected logits of shape [samples, positions, vocabulary], found "
        << logits << kRemedy;
    return failure();
  }

  SmallVector<Type> arguments(forward.getArgumentTypes());
  arguments.push_back(RankedTensorType::get({ShapedType::kDynamic}, builder.getI64Type()));
  auto result =
      RankedTensorType::get({ShapedType::kDynamic, logits.getDimSize(2)}, logits.getElementType());
  OpBuilder::InsertionGuard guard(builder);
  auto function = func::FuncOp::create(builder, forward.getLoc(), stringifyTask(Task::Logits),
                                       builder.getFunctionType(arguments, {result}));
  for (unsigned i = 0; i < forward.getNumArguments(); ++i)
    function.setArgAttrs(i, forward.getArgAttrDict(i));
  function.setArgAttr(
      forward.getNumArguments(), attributes::kArgument,
      ArgumentAttr::get(builder.getContext(), ArgumentKind::Input, uint32_t(inputs)));
  function.setResultAttr(0, attributes::kArgument,
                         ArgumentAttr::get(builder.getContext(), ArgumentKind::BoundaryOut, 0));
  Block *block = function.addEntryBlock();
  builder.setInsertionPointToEnd(block);
  IRMapping mapping;
  for (auto [from, to] : llvm::zip(forward.getArguments(), block->getArguments()))
    mapping.map(from, to);
  LogitsBuilder logitsBuilder(builder, mapping, block->getArguments().back(),
                              logits.getDimSize(1) + 1);
  Value picked = logitsBuilder.atPosition(loss.getLogits());
  if (!picked) {
    function.erase();
    emitError(loss.getLoc()) << "--with-generation: one position of the logits cannot be computed "
                                "alone, as the last unit mixes positions in a way that is not "
                                "supported"
                             << kRemedy;
    return failure();
  }
  func::ReturnOp::create(
      builder, forward.getLoc(),
      ValueRange{ReshapeOp::create(builder, forward.getLoc(), picked,
                                   ArrayRef<int64_t>{ShapedType::kDynamic, logits.getDimSize(2)})});
  // Arguments without uses, such as labels, are not arguments of the compiled function.
  llvm::BitVector unused(function.getNumArguments());
  for (BlockArgument argument : function.getArguments())
    unused[argument.getArgNumber()] = argument.use_empty();
  if (failed(function.eraseArguments(unused)))
    return failure();
  return function;
}
