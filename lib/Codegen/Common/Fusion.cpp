#include "Fusion.h"

#include "LibraryOps.h"
#include "Prepare.h"

#include "zorse/Dialect/Zorse/SampleOps.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace zorse;
using namespace zorse::codegen;

/// Maximum number of tensors that a kernel reads. More streams thrash the cache.
static constexpr unsigned kMaxOperands = 32;

/// Maximum number of pointers that a kernel gets: the mask of accumulated operands has 64 bits.
static constexpr size_t kMaxPointers = 64;

/// Maximum number of ops of a row kernel. A kernel of this length is far from memory-bound, and the
/// time of LLVM's scheduler is quadratic in the length of a block.
static constexpr size_t kMaxMembers = 256;

SmallVector<int64_t, 4> FusionGroup::shape() const {
  SmallVector<int64_t, 4> shape(lead);
  if (columns)
    shape.push_back(columns);
  return shape;
}

SmallVector<bool, 4> zorse::codegen::reducedDims(ReduceOp op) {
  auto type = cast<RankedTensorType>(op.getX().getType());
  SmallVector<bool, 4> reduced;
  for (int64_t dim = 0; dim < type.getRank(); ++dim)
    if (type.getDimSize(dim) != 1)
      reduced.push_back(llvm::is_contained(op.getDims(), dim));
  return reduced;
}

/// Whether the op reduces only the last squeezed dimension.
static bool isRowReduce(ReduceOp op) {
  SmallVector<bool, 4> reduced = reducedDims(op);
  return !reduced.empty() && reduced.back() && llvm::count(reduced, true) == 1 &&
         !ShapedType::isDynamic(squeezedShape(op.getX().getType()).back());
}

bool zorse::codegen::isAccessibleInFusionGroup(Value operand, const FusionGroup &fusionGroup) {
  std::optional<ViewChain> chain = viewChainOf(operand);
  if (!chain)
    return false;
  size_t rank = squeezedShape(chain->root.getType()).size(), lead = fusionGroup.lead.size();
  auto identity = [&](size_t count) {
    if (chain->dims.size() < count)
      return false;
    for (size_t i = 0; i < count; ++i)
      if (chain->dims[i] != static_cast<int>(i))
        return false;
    return true;
  };
  if (fusionGroup.columns && rank == lead + 1)
    return chain->dims.size() == rank && identity(rank);
  if (rank != lead || !identity(lead))
    return false;
  return chain->dims.size() == lead ||
         (fusionGroup.columns && chain->dims.size() == lead + 1 && chain->dims.back() == -1);
}

namespace {

int availability(Value value, const llvm::DenseMap<Operation *, int> &clusterOf) {
  Operation *op = rootOf(value).getDefiningOp();
  if (!op || isa<arith::ConstantOp>(op))
    return -1;
  auto found = clusterOf.find(op);
  if (found != clusterOf.end())
    return found->second;
  int last = -1;
  for (Value operand : op->getOperands())
    last = std::max(last, availability(operand, clusterOf));
  return last;
}

struct FusionBuilder {
  func::FuncOp function;
  const BufferAliases &aliases;
  FusionPlan result;
  /// Values that each cluster reads from memory, updated while row clusters grow. Searching all
  /// members for every op would be quadratic in long chains.
  std::vector<llvm::DenseSet<Value>> outside;
  /// Updates of state run in place over millions of elements. They are one launch that reads each
  /// element once, without workspace.
  bool isUpdate = false;
  bool fewLaunches = false; ///< see formFusionGroups()

  bool isMember(Value root, int index) const {
    auto found = result.fusionGroupOf.find(root.getDefiningOp());
    return found != result.fusionGroupOf.end() && found->second == index;
  }

  Value outsideRoot(Value operand) const {
    Value root = rootOf(operand);
    Operation *op = root.getDefiningOp();
    if (op && (isa<arith::ConstantOp>(op) || isMadeAgain(op)))
      return Value();
    return root;
  }

  /// Whether an op that is not in `members` reads a value, directly or through views, or a place
  /// claims it.
  bool isNeededBeyond(Value value, const llvm::DenseSet<Operation *> &members) const {
    return aliases.count(value) || llvm::any_of(value.getUsers(), [&](Operation *user) {
             return isViewOp(user) ? isNeededBeyond(user->getResult(0), members)
                                   : !members.contains(user);
           });
  }

  /// An upper bound of the number of pointers of a kernel of these ops. Different views of one
  /// tensor may start at different offsets.
  size_t pointers(std::initializer_list<ArrayRef<Operation *>> groups) const {
    llvm::DenseSet<Operation *> members;
    for (ArrayRef<Operation *> ops : groups)
      members.insert(ops.begin(), ops.end());
    llvm::DenseSet<Value> read;
    size_t written = 0;
    for (Operation *op : members) {
      for (Value operand : op->getOperands())
        if (Value root = outsideRoot(operand); root && !members.contains(root.getDefiningOp()))
          read.insert(operand);
      written += isNeededBeyond(op->getResult(0), members);
    }
    return read.size() + written;
  }

  /// Whether the shape of `op` allows it as a member of a row cluster.
  static bool fitsShape(Operation *op, const FusionGroup &c) {
    SmallVector<int64_t, 4> full = c.shape(), shape = squeezedShape(op->getResult(0).getType());
    if (auto reduce = dyn_cast<ReduceOp>(op))
      return c.columns && squeezedShape(reduce.getX().getType()) == full;
    if (auto take = dyn_cast<TakeAlongDimOp>(op))
      return c.columns && squeezedShape(take.getX().getType()) == full;
    if (isa<TakeAlongDimGradOp>(op))
      return c.columns && shape == full;
    return shape == full || (shape == c.lead && c.columns);
  }

  bool canJoin(int index, Operation *op) const {
    const FusionGroup &c = result.fusionGroups[index];
    if (c.kind != FusionGroup::Row || c.ops.empty() || c.ops.size() >= kMaxMembers ||
        !fitsShape(op, c))
      return false;
    const llvm::DenseSet<Value> &known = outside[size_t(index)];
    llvm::SmallSetVector<Value, 4> more;
    for (OpOperand &operand : op->getOpOperands()) {
      Value root = outsideRoot(operand.get());
      if (!root)
        continue;
      auto found = root.getDefiningOp() ? result.fusionGroupOf.find(root.getDefiningOp())
                                        : result.fusionGroupOf.end();
      if (found != result.fusionGroupOf.end() && found->second == index) {
        // Indices and tables of a gather are read from memory.
        if (isa<GatherOp>(op) || !isAccessibleInFusionGroup(operand.get(), c))
          return false;
      } else {
        if (availability(root, result.fusionGroupOf) >= index)
          return false;
        if (!known.contains(root))
          more.insert(root);
      }
    }
    if (pointers({c.ops, op}) > kMaxPointers)
      return false;
    const size_t streams = known.size() + more.size();
    return streams + c.ops.size() / 2 <= kMaxOperands || streams <= kMaxOperands / 2;
  }

  bool sharesInput(int index, Operation *op) const {
    const FusionGroup &c = result.fusionGroups[index];
    for (Operation *member : c.ops)
      for (Value theirs : member->getOperands())
        for (Value ours : op->getOperands())
          if (Value root = outsideRoot(ours);
              root && root == outsideRoot(theirs) && !squeezedShape(root.getType()).empty())
            return true;
    return false;
  }

  bool areCopies(int index, Operation *op) const {
    return op->hasAttr(kCopyAttr) &&
           llvm::all_of(result.fusionGroups[index].ops,
                        [](Operation *member) { return member->hasAttr(kCopyAttr); });
  }

  void append(int index, Operation *op) {
    result.fusionGroups[index].ops.push_back(op);
    result.fusionGroupOf[op] = index;
    for (Value operand : op->getOperands())
      if (Value root = outsideRoot(operand); root && !isMember(root, index))
        outside[size_t(index)].insert(root);
  }

  int create(FusionGroup fusionGroup) {
    outside.emplace_back();
    result.fusionGroups.push_back(std::move(fusionGroup));
    return result.fusionGroups.size() - 1;
  }

  void addRowOp(Operation *op) {
    int last = -1;
    for (Value operand : op->getOperands())
      last = std::max(last, availability(operand, result.fusionGroupOf));
    int count = result.fusionGroups.size();
    if (last >= 0 && canJoin(last, op))
      return append(last, op);
    for (int index = count - 1; index > last; --index)
      if (canJoin(index, op) &&
          (isUpdate || sharesInput(index, op) || (fewLaunches && areCopies(index, op))))
        return append(index, op);
    FusionGroup fusionGroup;
    SmallVector<int64_t, 4> shape = squeezedShape(op->getResult(0).getType());
    if (auto reduce = dyn_cast<ReduceOp>(op))
      shape = squeezedShape(reduce.getX().getType());
    if (auto take = dyn_cast<TakeAlongDimOp>(op))
      shape = squeezedShape(take.getX().getType());
    fusionGroup.lead = shape;
    if (!shape.empty() && !ShapedType::isDynamic(shape.back())) {
      fusionGroup.columns = shape.back();
      fusionGroup.lead.pop_back();
    }
    append(create(std::move(fusionGroup)), op);
  }

  /// Whether only `user` reads the contents of `value`, directly or through views.
  static bool onlyUsedBy(Value value, Operation *user, ArrayRef<Operation *> members) {
    return llvm::all_of(value.getUsers(), [&](Operation *op) {
      if (isViewOp(op))
        return onlyUsedBy(op->getResult(0), user, members);
      return op == user || llvm::is_contained(members, op);
    });
  }

  /// Returns the producer's cluster if it is elementwise, has the reduction's domain and is used
  /// only by it. Its ops are then moved into the reduction.
  int absorbable(ReduceOp reduce) const {
    Value root = rootOf(reduce.getX());
    if (!root.getDefiningOp())
      return -1;
    auto found = result.fusionGroupOf.find(root.getDefiningOp());
    if (found == result.fusionGroupOf.end())
      return -1;
    const FusionGroup &c = result.fusionGroups[found->second];
    if (c.kind != FusionGroup::Row || c.shape() != squeezedShape(reduce.getX().getType()) ||
        !isAccessibleInFusionGroup(reduce.getX(), c))
      return -1;
    for (Operation *op : c.ops) {
      if (!isElementwise(op) || squeezedShape(op->getResult(0).getType()) != c.shape() ||
          aliases.count(op->getResult(0)) || !onlyUsedBy(op->getResult(0), reduce, c.ops))
        return -1;
    }
    return found->second;
  }

  void addColumnReduce(ReduceOp reduce) {
    SmallVector<int64_t, 4> domain = squeezedShape(reduce.getX().getType());
    SmallVector<bool, 4> reduced = reducedDims(reduce);
    int source = absorbable(reduce);
    if (source < 0) {
      int last = availability(reduce.getX(), result.fusionGroupOf);
      for (int index = result.fusionGroups.size() - 1; index > last; --index) {
        FusionGroup &c = result.fusionGroups[index];
        if (c.kind == FusionGroup::Column && c.group < 0 && c.domain == domain &&
            c.reduced == reduced && sharesInput(index, reduce) && c.ops.size() < kMaxOperands &&
            pointers({c.ops, reduce.getOperation()}) <= kMaxPointers)
          return append(index, reduce);
      }
    }
    FusionGroup fusionGroup;
    fusionGroup.kind = FusionGroup::Column;
    fusionGroup.domain = domain;
    fusionGroup.reduced = reduced;
    int index = create(std::move(fusionGroup));
    if (source >= 0) {
      SmallVector<Operation *> moved;
      std::swap(moved, result.fusionGroups[source].ops);
      for (Operation *op : moved)
        append(index, op);
    }
    append(index, reduce);
  }

  void addGroupOp(Operation *op, int64_t group) {
    if (result.fusionGroups.empty() || result.fusionGroups.back().group != group) {
      FusionGroup fusionGroup;
      fusionGroup.kind = FusionGroup::Column;
      fusionGroup.group = group;
      create(std::move(fusionGroup));
    }
    FusionGroup &fusionGroup = result.fusionGroups.back();
    if (auto reduce = dyn_cast<ReduceOp>(op)) {
      fusionGroup.domain = squeezedShape(reduce.getX().getType());
      fusionGroup.reduced = reducedDims(reduce);
    }
    append(result.fusionGroups.size() - 1, op);
  }

  /// Whether cluster `writer` computes the value or a part of it.
  bool isWrittenBy(Value value, int writer) const {
    Operation *op = rootOf(value).getDefiningOp();
    if (!op)
      return false;
    auto found = result.fusionGroupOf.find(op);
    if (found != result.fusionGroupOf.end())
      return found->second == writer;
    return isa<ConcatOp>(op) &&
           llvm::any_of(op->getOperands(), [&](Value part) { return isWrittenBy(part, writer); });
  }

  /// Whether an op of cluster `reader` reads a result of cluster `writer`, through views or
  /// concats.
  bool reads(int reader, int writer) const {
    return llvm::any_of(result.fusionGroups[reader].ops, [&](Operation *op) {
      return llvm::any_of(op->getOperands(),
                          [&](Value operand) { return isWrittenBy(operand, writer); });
    });
  }

  /// Whether the ops of `from` can become members of `into` in the domain of `into`: an operand
  /// that one computes for the other must be at the same point.
  bool fitsTogether(int from, int into) const {
    const FusionGroup &a = result.fusionGroups[from], &b = result.fusionGroups[into];
    if (a.lead != b.lead || a.columns != b.columns) {
      // `from` would compute numbers of the points of `into`: elementwise ops over its leading
      // dimensions.
      if (!b.columns || a.shape() != b.lead)
        return false;
    }
    llvm::SmallSetVector<Value, 32> streams;
    size_t members = a.ops.size() + b.ops.size();
    for (const FusionGroup *fusionGroup : {&a, &b})
      for (Operation *op : fusionGroup->ops) {
        if (!fitsShape(op, b))
          return false;
        for (Value operand : op->getOperands()) {
          Value root = outsideRoot(operand);
          if (!root)
            continue;
          // A part of a concat that the cluster writes can be read only after all of it is written.
          if (root.getDefiningOp<ConcatOp>() &&
              (isWrittenBy(root, from) || isWrittenBy(root, into)))
            return false;
          auto found = root.getDefiningOp() ? result.fusionGroupOf.find(root.getDefiningOp())
                                            : result.fusionGroupOf.end();
          if (found == result.fusionGroupOf.end() ||
              (found->second != from && found->second != into))
            streams.insert(root);
          else if (isa<GatherOp>(op) || !isAccessibleInFusionGroup(operand, b))
            return false;
        }
      }
    return streams.size() + members / 4 <= kMaxOperands && pointers({a.ops, b.ops}) <= kMaxPointers;
  }

  void merge(int from, int into) {
    for (Operation *op : result.fusionGroups[from].ops)
      append(into, op);
    result.fusionGroups[from].ops.clear();
    outside[size_t(from)].clear();
    for (Value root :
         SmallVector<Value>(outside[size_t(into)].begin(), outside[size_t(into)].end()))
      if (isMember(root, into))
        outside[size_t(into)].erase(root);
    llvm::sort(result.fusionGroups[into].ops,
               [](Operation *a, Operation *b) { return a->isBeforeInBlock(b); });
  }

  /// Whether `b` reads `a`, or both read a tensor of a third cluster.
  bool related(int a, int b) const {
    return reads(b, a) || llvm::any_of(outside[size_t(a)], [&](Value root) {
             return outside[size_t(b)].contains(root) && !squeezedShape(root.getType()).empty();
           });
  }

  /// Swaps two clusters in the order of launches.
  void exchange(int a, int b) {
    std::swap(result.fusionGroups[a], result.fusionGroups[b]);
    std::swap(outside[size_t(a)], outside[size_t(b)]);
    for (int index : {a, b})
      for (Operation *op : result.fusionGroups[index].ops)
        result.fusionGroupOf[op] = index;
  }

  /// Merges row clusters of one domain that read each other or the same tensors. Moves the earlier
  /// cluster back or the later one forward.
  void mergeClusters() {
    auto isRow = [&](int i) {
      return result.fusionGroups[i].kind == FusionGroup::Row && !result.fusionGroups[i].ops.empty();
    };
    int count = result.fusionGroups.size();
    for (bool changed = true; changed;) {
      changed = false;
      for (int late = 1; late < count && !changed; ++late)
        for (int early = late - 1; early >= 0 && isRow(late) && !changed; --early) {
          if (!isRow(early) ||
              result.fusionGroups[early].ops.size() + result.fusionGroups[late].ops.size() >
                  kMaxMembers ||
              !related(early, late))
            continue;
          bool back = true, forward = true;
          for (int between = early + 1; between < late; ++between) {
            const bool exchange = result.fusionGroups[size_t(between)].kind ==
                                  FusionGroup::Exchange;
            back &= !reads(between, early) && !exchange;
            forward &= !reads(late, between) && !exchange;
          }
          if ((back || forward) && fitsTogether(early, late)) {
            if (back) {
              merge(early, late);
            } else {
              // The result has the domain of the later cluster and the position of the earlier one.
              exchange(early, late);
              merge(late, early);
            }
            changed = true;
          } else if (forward && fitsTogether(late, early)) {
            merge(late, early);
            changed = true;
          } else if (back && fitsTogether(late, early)) {
            // The result has the domain of the earlier cluster and the position of the later one.
            exchange(early, late);
            merge(early, late);
            changed = true;
          }
        }
    }
  }

  /// Merges sums over the same dimensions of one domain, even if they read different values. Moves
  /// the earlier sums back.
  void mergeColumns() {
    const int count = int(result.fusionGroups.size());
    for (int late = 1; late < count; ++late)
      for (int early = late - 1; early >= 0; --early) {
        FusionGroup &a = result.fusionGroups[size_t(early)], &b = result.fusionGroups[size_t(late)];
        if (a.kind != FusionGroup::Column || b.kind != FusionGroup::Column || a.ops.empty() ||
            b.ops.empty() || a.domain != b.domain || a.reduced != b.reduced ||
            a.ops.size() + b.ops.size() > kMaxOperands || pointers({a.ops, b.ops}) > kMaxPointers)
          continue;
        bool back = true;
        for (int after = early + 1; after <= late; ++after)
          back &= !reads(after, early) &&
                  result.fusionGroups[size_t(after)].kind != FusionGroup::Exchange;
        if (back)
          merge(early, late);
      }
  }

  LogicalResult run() {
    for (Operation &operation : function.getBody().front().without_terminator()) {
      Operation *op = &operation;
      if (isViewOp(op) || isa<arith::ConstantOp, ConcatOp>(op) || isMadeAgain(op))
        continue;
      auto reduce = dyn_cast<ReduceOp>(op);
      if (auto group = op->getAttrOfType<IntegerAttr>(kGroupAttr)) {
        addGroupOp(op, group.getInt());
      } else if (isLibraryOp(op) || isa<ScatterAddOp, AllReduceOp, AllGatherOp>(op)) {
        FusionGroup fusionGroup;
        fusionGroup.kind = isa<ScatterAddOp>(op)               ? FusionGroup::Scatter
                           : isa<AllReduceOp, AllGatherOp>(op) ? FusionGroup::Exchange
                           : isMatmul(op)                      ? FusionGroup::Matmul
                                                               : FusionGroup::Attention;
        append(create(std::move(fusionGroup)), op);
      } else if (reduce && !isRowReduce(reduce)) {
        addColumnReduce(reduce);
      } else if (reduce || isElementwise(op) ||
                 isa<GatherOp, TakeAlongDimOp, TakeAlongDimGradOp, SampleNumberOp, DropoutOp,
                     CausalMaskOp>(op)) {
        addRowOp(op);
      } else {
        return op->emitOpError(
            "has no CPU code: kernels are built from zorse, arith and math ops on tensors");
      }
    }
    mergeClusters();
    if (fewLaunches)
      mergeColumns();
    return success();
  }
};

} // namespace

int FusionPlan::availableAfter(Value value) const { return availability(value, fusionGroupOf); }

static bool usedOutside(Value value, int cluster, const FusionPlan &plan) {
  return llvm::any_of(value.getUsers(), [&](Operation *op) {
    if (isViewOp(op))
      return usedOutside(op->getResult(0), cluster, plan);
    auto found = plan.fusionGroupOf.find(op);
    return found != plan.fusionGroupOf.end() && found->second != cluster;
  });
}

bool FusionPlan::isMaterialised(Value value, const BufferAliases &aliases) const {
  return aliases.count(value) ||
         usedOutside(value, fusionGroupOf.lookup(value.getDefiningOp()), *this);
}

FailureOr<FusionPlan> zorse::codegen::formFusionGroups(func::FuncOp function,
                                                       const BufferAliases &aliases,
                                                       bool fewLaunches) {
  FusionBuilder former{function, aliases, FusionPlan(), {}};
  former.fewLaunches = fewLaunches;
  for (unsigned i = 0; i < function.getNumResults(); ++i)
    former.isUpdate |= isOfKind(attributeOfResult(function, i), ArgumentKind::State);
  if (failed(former.run()))
    return failure();
  return std::move(former.result);
}
