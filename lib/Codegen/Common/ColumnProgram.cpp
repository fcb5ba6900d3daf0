#include "ColumnProgram.h"

using namespace mlir;
using namespace zorse;
using namespace zorse::codegen;

ColumnProgram::ColumnProgram(KernelBuilder &k, const KernelContext &context, int index)
    : context(context), fusionGroup(context.plan.fusionGroups[size_t(index)]), k(k),
      expression(k, context.plan, index, context.aliases, fusionGroup.domain, true) {
  hasColumns = !fusionGroup.reduced.back() && !ShapedType::isDynamic(fusionGroup.domain.back());
  for (size_t dim = 0; dim < fusionGroup.domain.size(); ++dim)
    if (fusionGroup.reduced[dim])
      reducedDims.push_back(dim);
    else if (!hasColumns || dim + 1 < fusionGroup.domain.size())
      keptDims.push_back(dim);
  for (Operation *op : fusionGroup.ops) {
    auto reduce = dyn_cast<ReduceOp>(op);
    if (!reduce) {
      expression.define(op);
      continue;
    }
    Result result;
    result.op = reduce;
    result.node = expression.use(reduce.getX());
    result.element = getElementTypeOrSelf(reduce.getY().getType());
    result.type = KernelBuilder::computeType(result.element);
    Layout layout = storageLayout(reduce.getY(), context.aliases);
    result.operand = k.operand(reduce.getY(), layout.offset);
    result.strides = squeezedStrides(reduce.getY().getType(), layout);
    if (context.accumulates(reduce.getY()))
      k.markAccumulated(result.operand);
    results.push_back(result);
  }
}

Size ColumnProgram::sizeOf(size_t dim) const {
  return ShapedType::isDynamic(fusionGroup.domain[dim]) ? Size{1, true}
                                                        : Size{fusionGroup.domain[dim], false};
}

Value ColumnProgram::evaluate(int node, ArrayRef<Value> indices,
                              llvm::DenseMap<int, Value> &cache) {
  if (Value found = cache.lookup(node))
    return found;
  SmallVector<Value> inputs;
  for (int input : expression.nodes[size_t(node)].inputs)
    inputs.push_back(evaluate(input, indices, cache));
  return cache[node] = expression.evaluate(expression.nodes[size_t(node)], inputs, indices);
}

SmallVector<Value> ColumnProgram::identities() {
  SmallVector<Value> start;
  for (Result &result : results)
    start.push_back(k.identity(result.op.getKind(), result.type));
  return start;
}

void ColumnProgram::store(Result &result, Value value, ArrayRef<Value> keptIndices) {
  Value flag = context.accumulates(result.op.getY()) ? k.accumulates(result.operand) : Value();
  k.store(value, k.pointer(result.operand), k.offset(keptIndices, result.strides), result.element,
          flag);
}
