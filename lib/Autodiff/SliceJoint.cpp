// Step 3 of differentiation: saved values become arguments of the backward. Other forward values
// that its gradients read are recomputed there.
#include "EditFunction.h"

#include "zorse/Autodiff/Autodiff.h"
#include "zorse/Dialect/Zorse/EraseDeadOps.h"
#include "zorse/Dialect/Zorse/ZorseOps.h"

using namespace mlir;
using namespace zorse;
using namespace zorse::autodiff;

/// Erases forward operations without uses, in order, and moves the others directly before their
/// first reader, which shortens live ranges.
static void scheduleRecomputation(ArrayRef<Operation *> forwardOps) {
  for (Operation *op : llvm::reverse(forwardOps)) {
    if (op->use_empty()) {
      op->erase();
      continue;
    }
    Operation *firstUser = nullptr;
    for (Operation *user : op->getUsers())
      if (!firstUser || user->isBeforeInBlock(firstUser))
        firstUser = user;
    op->moveBefore(firstUser);
  }
}

static func::FuncOp sliceBackward(func::FuncOp joint) {
  DenseSet<Operation *> forward = sliceOf(joint, isForwardKind);
  SmallVector<Value> saved =
      resultsOf(joint, [](ArgumentKind kind) { return kind == ArgumentKind::Saved; });
  IRMapping copies;
  func::FuncOp backward = cloneAs(joint, Task::Backward, copies);
  dropResults(backward, [](ArgumentKind kind) { return !isGradientKind(kind); });
  for (auto [index, value] : llvm::enumerate(saved))
    copies.lookup(value).replaceAllUsesWith(addArgument(
        backward, value.getType(), ArgumentKind::Saved, uint32_t(index), value.getLoc()));
  SmallVector<Operation *> recomputed;
  for (Operation &op : joint.getBody().front())
    if (forward.contains(&op))
      recomputed.push_back(copies.lookup(&op));
  scheduleRecomputation(recomputed);
  eraseDeadOps(backward.getBody().front()); // gradient operations without uses
  dropUnusedArguments(backward);
  dropUnusedStatistics(backward.getBody().front());
  for (BlockArgument argument : backward.getArguments())
    backward.removeArgAttr(argument.getArgNumber(), kGradientAttr);
  return backward;
}

DifferentiatedFunctions autodiff::sliceJoint(func::FuncOp joint) {
  dropPairs(joint);
  DifferentiatedFunctions result{joint, nullptr};
  if (!resultsOf(joint, isGradientKind).empty()) {
    result.backward = sliceBackward(joint);
    dropResults(joint, isGradientKind);
    eraseDeadOps(joint.getBody().front());
    dropUnusedStatistics(joint.getBody().front());
  }
  dropUnusedArguments(joint, [](ArgumentKind kind) {
    return kind == ArgumentKind::BoundaryOutGradient || kind == ArgumentKind::Scalars;
  });
  joint.setName(stringifyTask(Task::Forward));
  return result;
}

func::FuncOp autodiff::sliceSaved(func::FuncOp forward) {
  auto isSaved = [](ArgumentKind kind) { return kind == ArgumentKind::Saved; };
  if (resultsOf(forward, isSaved).empty())
    return nullptr;
  IRMapping copies;
  func::FuncOp slice = cloneAs(forward, Task::Recompute, copies);
  dropResults(slice, [&](ArgumentKind kind) { return !isSaved(kind); });
  eraseDeadOps(slice.getBody().front());
  dropUnusedArguments(slice);
  dropUnusedStatistics(slice.getBody().front());
  for (BlockArgument argument : slice.getArguments())
    slice.removeArgAttr(argument.getArgNumber(), kGradientAttr);
  return slice;
}

FailureOr<DifferentiatedFunctions> autodiff::differentiate(func::FuncOp forward,
                                                           RecomputePolicy policy) {
  FailureOr<func::FuncOp> joint = joinBackward(forward);
  if (failed(joint))
    return failure();
  chooseSaved(*joint, policy);
  return sliceJoint(*joint);
}
