#include "EditFunction.h"

#include "zorse/Dialect/Zorse/ZorseOps.h"

using namespace mlir;
using namespace zorse;

Value autodiff::addArgument(func::FuncOp function, Type type, ArgumentKind kind, uint32_t index,
                            Location loc) {
  unsigned position = function.getNumArguments();
  (void)function.insertArgument(position, type, {}, loc);
  function.setArgAttr(position, attributes::kArgument,
                      ArgumentAttr::get(function.getContext(), kind, index));
  return function.getArgument(position);
}

void autodiff::appendResults(func::FuncOp function, ArrayRef<ResultValue> results) {
  Operation *terminator = function.getBody().front().getTerminator();
  SmallVector<Value> operands(terminator->getOperands());
  SmallVector<Type> types(function.getResultTypes());
  unsigned first = types.size();
  for (const ResultValue &result : results) {
    operands.push_back(result.value);
    types.push_back(result.value.getType());
  }
  terminator->setOperands(operands);
  SmallVector<DictionaryAttr> attributes;
  function.getAllResultAttrs(attributes);
  attributes.resize(types.size(), DictionaryAttr::get(function.getContext()));
  function.setFunctionType(
      FunctionType::get(function.getContext(), function.getArgumentTypes(), types));
  function.setAllResultAttrs(attributes);
  for (auto [i, result] : llvm::enumerate(results))
    function.setResultAttr(first + i, attributes::kArgument,
                           ArgumentAttr::get(function.getContext(), result.kind, result.index));
}

func::FuncOp autodiff::cloneAs(func::FuncOp function, Task task, IRMapping &mapping) {
  OpBuilder builder(function);
  builder.setInsertionPointAfter(function);
  auto clone = cast<func::FuncOp>(builder.clone(*function, mapping));
  clone.setName(stringifyTask(task));
  return clone;
}

SmallVector<Value> autodiff::resultsOf(func::FuncOp function,
                                       function_ref<bool(ArgumentKind)> wanted) {
  SmallVector<Value> values;
  for (auto [i, returned] :
       llvm::enumerate(function.getBody().front().getTerminator()->getOperands()))
    if (ArgumentAttr attribute = attributeOfResult(function, i);
        attribute && wanted(attribute.getKind()))
      values.push_back(returned);
  return values;
}

DenseSet<Operation *> autodiff::sliceOf(func::FuncOp function,
                                        function_ref<bool(ArgumentKind)> wanted) {
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

void autodiff::dropResults(func::FuncOp function, function_ref<bool(ArgumentKind)> dropped) {
  llvm::BitVector unwanted(function.getNumResults());
  for (unsigned i = 0; i < function.getNumResults(); ++i)
    if (ArgumentAttr attribute = attributeOfResult(function, i))
      unwanted[i] = dropped(attribute.getKind());
  function.getBody().front().getTerminator()->eraseOperands(unwanted);
  (void)function.eraseResults(unwanted);
}

void autodiff::dropUnusedArguments(func::FuncOp function,
                                   function_ref<bool(ArgumentKind)> droppable) {
  llvm::BitVector unused(function.getNumArguments());
  for (BlockArgument argument : function.getArguments())
    if (ArgumentAttr attribute = attributeOfArgument(function, argument.getArgNumber());
        attribute && argument.use_empty() && droppable(attribute.getKind()))
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
    if (!hasOptionalStatistics(&op) || op.getNumResults() < 2 ||
        llvm::any_of(op.getResults().drop_front(), [](Value v) { return !v.use_empty(); }))
      continue;
    OpBuilder builder(&op);
    OperationState state(op.getLoc(), op.getName(), op.getOperands(), op.getResult(0).getType(),
                         op.getAttrs());
    Operation *bare = builder.create(state);
    op.getResult(0).replaceAllUsesWith(bare->getResult(0));
    op.erase();
  }
}
