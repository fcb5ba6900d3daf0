#include "ScatterProgram.h"

#include "Prepare.h"

using namespace mlir;
using namespace zorse;
using namespace zorse::codegen;

ScatterProgram::ScatterProgram(KernelBuilder &k, const KernelContext &context, int index)
    : op(cast<ScatterAddOp>(context.plan.fusionGroups[size_t(index)].ops.front())), k(k) {
  auto table = cast<RankedTensorType>(op.getY().getType());
  element = table.getElementType();
  indexType = getElementTypeOrSelf(op.getIndices().getType());
  View indices = *viewOf(op.getIndices(), context.aliases),
       updates = *viewOf(op.getUpdates(), context.aliases);
  updateElement = getElementTypeOrSelf(updates.root.getType());
  indexOperand = k.operand(indices.root, indices.layout.offset);
  updateOperand = k.operand(updates.root, updates.layout.offset);
  out = k.operand(op.getY(), storageLayout(op.getY(), context.aliases).offset);
  accumulates = context.accumulates(op.getY());
  if (accumulates)
    k.markAccumulated(out);

  indexStrides = squeezedStrides(op.getIndices().getType(), indices.layout);
  updateStrides = squeezedStrides(op.getUpdates().getType(), updates.layout);
  for (int64_t size : squeezedShape(op.getIndices().getType()))
    leadSizes.push_back(ShapedType::isDynamic(size) ? Size{1, true} : Size{size, false});
  tokens = matmul(leadSizes);
  for (int64_t size : table.getShape().drop_front())
    if (size != 1)
      tailSizes.push_back(Size{size, false});
  tableRows = table.getDimSize(0);
  width = elementCount(table) / tableRows;
  k.addCost(Size{elementCount(table), false}, elementBytes(element));
  k.addCost(Size{tokens.count * width, tokens.sampled}, 3 * elementBytes(element));
}

Value ScatterProgram::update(Value from) {
  return k.load(k.pointer(updateOperand), from, updateElement);
}

Value ScatterProgram::get(Value at) { return k.load(k.pointer(out), at, element); }

void ScatterProgram::put(Value value, Value at) { k.store(value, k.pointer(out), at, element); }

void ScatterProgram::clear(Value at) {
  put(k.number(KernelBuilder::computeType(element), 0.0), at);
}

Value ScatterProgram::sum(Value value, Value update) {
  value = k.combine(ReduceKind::Sum, value, update);
  return KernelBuilder::computeType(element) == element ? value : k.round(value, element);
}
