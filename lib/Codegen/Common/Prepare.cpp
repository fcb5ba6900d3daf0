#include "Prepare.h"

#include "ArgumentLayout.h"
#include "LibraryOps.h"

#include "zorse/Summary/Summary.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/Builders.h"

#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/SmallPtrSet.h"

using namespace mlir;
using namespace zorse;
using namespace zorse::codegen;

static RankedTensorType typeOf(Value value) { return cast<RankedTensorType>(value.getType()); }

bool zorse::codegen::isElementwise(Operation *op) {
  if (isa<arith::ConstantOp>(op))
    return false;
  return op->hasAttr(kCopyAttr) || isa<RoundOp>(op) ||
         isa<arith::ArithDialect, math::MathDialect>(op->getDialect());
}

bool zorse::codegen::isUniform(Operation *op) {
  SmallVector<Operation *> open{op};
  SmallPtrSet<Operation *, 16> seen; // scalars have many uses; without it, every path to one would
                                     // be visited
  while (!open.empty()) {
    Operation *next = open.pop_back_val();
    if (!next || !isElementwise(next) || next->hasAttr(kCopyAttr))
      return false;
    RankedTensorType type = typeOf(next->getResult(0));
    if (carriesSamples(type) || elementCount(type) != 1)
      return false;
    for (Value operand : next->getOperands())
      if (Operation *root = rootOf(operand).getDefiningOp();
          root && !isa<arith::ConstantOp>(root) && seen.insert(root).second)
        open.push_back(root);
  }
  return true;
}

/// Whether only elementwise ops read a value, through views that map each of its dimensions.
static bool isReadByElementAlone(Value value) {
  return llvm::all_of(value.getUsers(), [&](Operation *user) {
    return isViewOp(user)
               ? isReadByElementAlone(user->getResult(0))
               : isElementwise(user) && !user->hasAttr(kCopyAttr) && viewChainOf(value).has_value();
  });
}

bool zorse::codegen::isMadeAgain(Operation *op) {
  return isUniform(op) ||
         (isa_and_nonnull<CausalMaskOp>(op) && isReadByElementAlone(op->getResult(0)));
}

namespace {

struct Placer {
  func::FuncOp function;
  bool fewLaunches;
  BufferAliases aliases;
  OpBuilder builder;

  Placer(func::FuncOp function, bool fewLaunches)
      : function(function), fewLaunches(fewLaunches), builder(function.getContext()) {}

  Value copyBefore(Operation *user, Value value) {
    builder.setInsertionPoint(user);
    auto copy = ReshapeOp::create(builder, value.getLoc(), value.getType(), value);
    copy->setAttr(kCopyAttr, builder.getUnitAttr());
    return copy.getY();
  }

  /// Whether the op that computes `root` can write it with these strides.
  bool canWrite(Value root, const BufferAlias &alias) {
    Operation *op = root.getDefiningOp();
    if (!op || isa<arith::ConstantOp, AllReduceOp, AllGatherOp>(op) || isMadeAgain(op) ||
        aliases.count(root))
      return false;
    if (isa<ScatterAddOp>(op))
      return alias.layout.strides == denseLayout(typeOf(root)).strides;
    if (!isLibraryOp(op))
      return true;
    if (alias.layout.strides == denseLayout(typeOf(root)).strides)
      return true;
    aliases[root] = alias;
    bool possible = isMatmul(op) ? planMatmul(op, aliases).has_value()
                                 : planAttention(op, aliases).has_value();
    aliases.erase(root);
    return possible;
  }

  /// Makes the root of `operand` write directly to the location of `alias`, or inserts a copy that
  /// does.
  void place(OpOperand &operand, BufferAlias alias, bool accumulates) {
    BufferAlias wanted = alias;
    Value value = operand.get();
    bool direct = true, alone = value.hasOneUse();
    SmallVector<Operation *> views; // views from the claimed location to the value
    while (direct && isViewOp(value.getDefiningOp())) {
      Operation *op = value.getDefiningOp();
      Value source = op->getOperand(0);
      if (isa<ReshapeOp>(op)) {
        auto layout =
            reshapeLayout(alias.layout, typeOf(value).getShape(), typeOf(source).getShape());
        direct = layout.has_value();
        if (layout)
          alias.layout = *layout;
      } else if (auto transpose = dyn_cast<TransposeOp>(op)) {
        SmallVector<int64_t, 4> strides(alias.layout.strides.size());
        for (auto [dim, from] : llvm::enumerate(transpose.getPermutation()))
          strides[from] = alias.layout.strides[dim];
        alias.layout.strides = strides;
      } else {
        direct = false;
      }
      value = source;
      views.push_back(op);
      alone &= value.hasOneUse();
    }
    // An accumulated buffer cannot be read back, so an accumulated value must have no other user.
    if (direct && (alone || !accumulates) && canWrite(value, alias)) {
      aliases[value] = alias;
      return;
    }
    if (Operation *maker = value.getDefiningOp();
        fewLaunches && direct && !views.empty() && maker && isLibraryOp(maker)) {
      // A copy of the outermost view might need another copy before it. Other users of that view
      // read the copy, unless the copy accumulates.
      const bool shared = !accumulates && !operand.get().hasOneUse();
      Value copy = copyBefore(shared ? maker->getNextNode() : operand.getOwner(), value),
            view = copy;
      for (Operation *op : llvm::reverse(views)) {
        Operation *again = builder.clone(*op);
        again->setOperand(0, view);
        view = again->getResult(0);
      }
      shared ? operand.get().replaceAllUsesWith(view) : operand.set(view);
      aliases[copy] = alias;
      return;
    }
    Value copy = copyBefore(operand.getOwner(), operand.get());
    operand.set(copy);
    aliases[copy] = wanted;
  }

  /// Half-precision gradients are complete when they are written, because they have been rounded
  /// (docs/concepts/precision.md).
  bool accumulates(unsigned result) {
    if (result >= function.getNumResults()) // of an exchange
      return false;
    ArgumentAttr attribute = attributeOfResult(function, result);
    return isOfKind(attribute, ArgumentKind::ParameterGradient) ||
           (isOfKind(attribute, ArgumentKind::BoundaryInGradient) &&
            !isHalf(bundleType(function.getResultTypes()[result])));
  }

  void placeResults() {
    Operation *terminator = function.getBody().front().getTerminator();
    for (OpOperand &operand : terminator->getOpOperands()) {
      unsigned index = operand.getOperandNumber();
      place(operand, BufferAlias{Value(), index, denseLayout(typeOf(operand.get()))},
            accumulates(index));
    }
  }

  /// Exchanges read and write one place. What they read has no other reader, because a sum
  /// overwrites it.
  void placeExchanges() {
    SmallVector<std::pair<Operation *, unsigned>> exchanges;
    forEachExchange(function, [&](Operation *exchange, unsigned first) {
      exchanges.push_back({exchange, first});
    });
    for (auto [exchange, first] : exchanges) {
      const unsigned mine =
          isa<AllGatherOp>(exchange) ? unsigned(cast<AllGatherOp>(exchange).getDevice()) : 0;
      place(exchange->getOpOperand(0),
            BufferAlias{Value(), first + mine, denseLayout(typeOf(exchange->getOperand(0)))},
            /*accumulates=*/true);
      for (auto [part, value] : llvm::enumerate(exchange->getResults()))
        aliases[value] = BufferAlias{Value(), first + unsigned(part), denseLayout(typeOf(value))};
    }
  }

  bool resultAccumulates(const BufferAlias &alias) {
    return !alias.container && accumulates(alias.result);
  }

  void placeConcats() {
    SmallVector<ConcatOp> concats;
    function.walk([&](ConcatOp op) { concats.push_back(op); });
    for (ConcatOp op : llvm::reverse(concats)) {
      auto found = aliases.find(op.getY());
      BufferAlias whole = found != aliases.end()
                              ? found->second
                              : BufferAlias{op.getY(), 0, denseLayout(typeOf(op.getY()))};
      int64_t dim = op.getDim(), offset = 0;
      for (OpOperand &operand : op->getOpOperands()) {
        BufferAlias part = whole;
        part.layout.offset += offset * whole.layout.strides[dim];
        offset += typeOf(operand.get()).getDimSize(dim);
        place(operand, part, resultAccumulates(whole));
      }
    }
  }

  /// Inserts copies if strides cannot express a view.
  void resolveViews() {
    SmallVector<Operation *> ops;
    for (Operation &op : function.getBody().front().without_terminator())
      if (!isViewOp(&op) && !isa<ConcatOp, AllReduceOp, AllGatherOp>(op))
        ops.push_back(&op);
    for (Operation *op : ops)
      for (Value operand : op->getOperands()) {
        Operation *blocking = nullptr;
        while (!viewOf(operand, aliases, &blocking))
          blocking->setOperand(0, copyBefore(blocking, blocking->getOperand(0)));
      }
  }

  LogicalResult resolveLibraryOps() {
    SmallVector<Operation *> ops;
    function.walk([&](Operation *op) {
      if (isLibraryOp(op))
        ops.push_back(op);
    });
    for (Operation *op : ops) {
      bool matmul = isMatmul(op);
      if (!matmul && !carriesSamples(op->getOperand(0).getType()))
        return op->emitOpError(
            "expects operands with a sample axis: attention of constants has no CPU routine");
      // Constants have no buffer that a routine could read.
      for (OpOperand &operand : op->getOpOperands())
        if (Operation *root = rootOf(operand.get()).getDefiningOp();
            root && (isa<arith::ConstantOp>(root) || isUniform(root)))
          operand.set(copyBefore(op, operand.get()));
      auto fits = [&] {
        return matmul ? planMatmul(op, aliases).has_value()
                      : planAttention(op, aliases).has_value();
      };
      for (OpOperand &operand : op->getOpOperands()) {
        if (fits())
          break;
        if (isViewOp(operand.get().getDefiningOp()) || aliases.count(operand.get()))
          operand.set(copyBefore(op, operand.get()));
      }
      if (!fits())
        return op->emitOpError(
            "has strides that no library routine accepts; this is a compiler bug");
    }
    return success();
  }
};

} // namespace

/// Returns the number of exchanges that precede each op: the first segment that its operands
/// permit. The ops of a group stay together.
static llvm::DenseMap<Operation *, unsigned> findSegments(Block &body) {
  llvm::DenseMap<Operation *, unsigned> segmentOf;
  llvm::DenseMap<int64_t, unsigned> segmentOfGroup;
  for (bool changed = true; std::exchange(changed, false);) {
    unsigned exchanges = 0;
    for (Operation &op : body.without_terminator()) {
      const bool exchange = isa<AllReduceOp, AllGatherOp>(op);
      unsigned segment = exchange ? exchanges++ : 0; // exchanges keep their order
      for (Value operand : op.getOperands())
        if (Operation *from = operand.getDefiningOp())
          segment = std::max(segment, segmentOf.lookup(from) + isa<AllReduceOp, AllGatherOp>(from));
      if (auto group = op.getAttrOfType<IntegerAttr>(kGroupAttr)) {
        unsigned &together = segmentOfGroup[group.getInt()];
        changed |= segment > together;
        segment = together = std::max(together, segment);
      }
      segmentOf[&op] = segment;
    }
  }
  return segmentOf;
}

bool zorse::codegen::orderByExchanges(func::FuncOp function) {
  Block &body = function.getBody().front();
  if (llvm::none_of(body, [](Operation &op) { return isa<AllReduceOp, AllGatherOp>(op); }))
    return false;
  const llvm::DenseMap<Operation *, unsigned> segmentOf = findSegments(body);
  SmallVector<Operation *> ops;
  for (Operation &op : body.without_terminator())
    ops.push_back(&op);
  auto place = [&](Operation *op) { // an exchange is the last of its segment
    return std::pair(segmentOf.lookup(op), isa<AllReduceOp, AllGatherOp>(op));
  };
  llvm::stable_sort(ops, [&](Operation *a, Operation *b) { return place(a) < place(b); });
  for (Operation *op : ops)
    op->moveBefore(body.getTerminator());
  return true;
}

void zorse::codegen::moveParameterGradientsLast(func::FuncOp function) {
  Operation *terminator = function.getBody().front().getTerminator();
  llvm::SetVector<Operation *> late;    // ops to move, starting at the last one
  llvm::DenseMap<int64_t, bool> isLate; // by group; the ops of a group stay together
  auto isParameterGradient = [&](OpOperand &use) {
    return isOfKind(attributeOfResult(function, use.getOperandNumber()),
                    ArgumentKind::ParameterGradient);
  };
  for (Operation &op : llvm::reverse(function.getBody().front().without_terminator())) {
    const bool found = !op.use_empty() && llvm::all_of(op.getUses(), [&](OpOperand &use) {
      return use.getOwner() == terminator ? isParameterGradient(use)
                                          : late.contains(use.getOwner());
    });
    if (auto group = op.getAttrOfType<IntegerAttr>(kGroupAttr);
        group && isLate.try_emplace(group.getInt(), found).first->second != found)
      return;
    if (found)
      late.insert(&op);
  }
  for (Operation *op : llvm::reverse(late))
    op->moveBefore(terminator);
}

FailureOr<BufferAliases> zorse::codegen::assignAliases(func::FuncOp function, bool fewLaunches) {
  Placer placer(function, fewLaunches);
  placer.placeExchanges();
  placer.placeResults();
  placer.placeConcats();
  placer.resolveViews();
  if (failed(placer.resolveLibraryOps()))
    return failure();
  return std::move(placer.aliases);
}
