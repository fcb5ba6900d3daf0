#include "EditFunction.h"

#include "zorse/Dialect/Zorse/ZorseOps.h"

using namespace mlir;
using namespace zorse;

StringRef autodiff::slotOfArgument(func::FuncOp function, unsigned argument) {
  auto slot = function.getArgAttrOfType<StringAttr>(argument, kSlotAttr);
  return slot ? slot.getValue() : StringRef();
}

StringRef autodiff::slotOfResult(func::FuncOp function, unsigned result) {
  auto slot = function.getResultAttrOfType<StringAttr>(result, kSlotAttr);
  return slot ? slot.getValue() : StringRef();
}

void autodiff::setSlot(func::FuncOp function, bool isArgument, unsigned position, StringRef slot, int64_t index) {
  Builder builder(function.getContext());
  if (isArgument) {
    function.setArgAttr(position, kSlotAttr, builder.getStringAttr(slot));
    function.setArgAttr(position, kIndexAttr, builder.getI64IntegerAttr(index));
  } else {
    function.setResultAttr(position, kSlotAttr, builder.getStringAttr(slot));
    function.setResultAttr(position, kIndexAttr, builder.getI64IntegerAttr(index));
  }
}

Value autodiff::addArgument(func::FuncOp function, Type type, StringRef slot, int64_t index, Location loc) {
  unsigned position = function.getNumArguments();
  (void)function.insertArgument(position, type, {}, loc);
  setSlot(function, true, position, slot, index);
  return function.getArgument(position);
}

void autodiff::appendResults(func::FuncOp function, ArrayRef<SlotValue> results) {
  Operation *terminator = function.getBody().front().getTerminator();
  SmallVector<Value> operands(terminator->getOperands());
  SmallVector<Type> types(function.getResultTypes());
  unsigned first = types.size();
  for (const SlotValue &result : results) {
    operands.push_back(result.value);
    types.push_back(result.value.getType());
  }
  terminator->setOperands(operands);
  SmallVector<DictionaryAttr> attributes;
  function.getAllResultAttrs(attributes);
  attributes.resize(types.size(), DictionaryAttr::get(function.getContext()));
  function.setFunctionType(FunctionType::get(function.getContext(), function.getArgumentTypes(), types));
  function.setAllResultAttrs(attributes);
  for (auto [i, result] : llvm::enumerate(results))
    setSlot(function, false, first + i, result.slot, result.index);
}

func::FuncOp autodiff::cloneAs(func::FuncOp function, StringRef name, IRMapping &mapping) {
  OpBuilder builder(function);
  builder.setInsertionPointAfter(function);
  auto clone = cast<func::FuncOp>(builder.clone(*function, mapping));
  clone.setName(name);
  return clone;
}

SmallVector<Value> autodiff::resultsOf(func::FuncOp function, function_ref<bool(StringRef)> wanted) {
  SmallVector<Value> values;
  for (auto [i, returned] : llvm::enumerate(function.getBody().front().getTerminator()->getOperands()))
    if (wanted(slotOfResult(function, i)))
      values.push_back(returned);
  return values;
}

DenseSet<Operation *> autodiff::sliceOf(func::FuncOp function, function_ref<bool(StringRef)> wanted) {
  DenseSet<Operation *> slice;
  auto add = [&](Value value) {
    if (Operation *producer = value.getDefiningOp())
      slice.insert(producer);
  };
  for (Value value : resultsOf(function, wanted))
    add(value);
  for (Operation &op : llvm::reverse(function.getBody().front().without_terminator()))
    if (slice.contains(&op))
      for (Value operand : op.getOperands())
        add(operand);
  return slice;
}

void autodiff::dropResults(func::FuncOp function, function_ref<bool(StringRef)> dropped) {
  llvm::BitVector unwanted(function.getNumResults());
  for (unsigned i = 0; i < function.getNumResults(); ++i)
    unwanted[i] = dropped(slotOfResult(function, i));
  function.getBody().front().getTerminator()->eraseOperands(unwanted);
  (void)function.eraseResults(unwanted);
}

void autodiff::dropUnusedArguments(func::FuncOp function, function_ref<bool(StringRef)> droppable) {
  llvm::BitVector unused(function.getNumArguments());
  for (BlockArgument argument : function.getArguments())
    if (argument.use_empty() && droppable(slotOfArgument(function, argument.getArgNumber())))
      unused.set(argument.getArgNumber());
  (void)function.eraseArguments(unused);
}

void autodiff::dropPairs(func::FuncOp joint) {
  for (Operation &op : llvm::make_early_inc_range(joint.getBody().front()))
    if (auto pair = dyn_cast<GradientOfOp>(op)) {
      pair.getResult().replaceAllUsesWith(pair.getGradient());
      pair.erase();
    }
}

void autodiff::dropUnusedStatistics(Block &block) {
  for (Operation &op : llvm::make_early_inc_range(block.without_terminator())) {
    if (!hasOptionalStatistics(&op) || op.getNumResults() < 2 || llvm::any_of(op.getResults().drop_front(), [](Value v) { return !v.use_empty(); }))
      continue;
    OpBuilder builder(&op);
    OperationState state(op.getLoc(), op.getName(), op.getOperands(), op.getResult(0).getType(), op.getAttrs());
    Operation *bare = builder.create(state);
    op.getResult(0).replaceAllUsesWith(bare->getResult(0));
    op.erase();
  }
}
