#include "RowProgram.h"

#include "Prepare.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace zorse;
using namespace zorse::codegen;

RowProgram::RowProgram(KernelBuilder &k, const KernelContext &context, int index)
    : context(context), fusionGroup(context.plan.fusionGroups[index]), k(k),
      expression(k, context.plan, index, context.aliases, fusionGroup.shape(),
                 fusionGroup.columns != 0),
      columns(fusionGroup.columns) {
  buildGraph();
  mergeDims();
  markNeeded();
  scalars.assign(nodes().size(), Value());
  for (size_t i = 0; i < nodes().size(); ++i)
    if (nodes()[i].form == Form::Uniform && needed[i] && nodes()[i].kind != Node::Reduce) {
      SmallVector<Value> none(sizes.size() + (columns != 0), Value());
      scalarOf(i, none);
    }
  for (const StoreNode &store : stores)
    if (store.accumulates && !flags.count(store.operand))
      flags[store.operand] = k.accumulates(store.operand);
}

void RowProgram::buildGraph() {
  SmallVector<int64_t, 4> shape = fusionGroup.shape();
  for (Operation *op : fusionGroup.ops)
    expression.define(op);
  for (Operation *op : fusionGroup.ops) {
    Value result = op->getResult(0);
    if (!context.plan.isMaterialised(result, context.aliases))
      continue;
    Layout layout = storageLayout(result, context.aliases);
    StoreNode store;
    store.node = expression.nodeOf(result);
    store.element = getElementTypeOrSelf(result.getType());
    store.operand = k.operand(result, layout.offset);
    store.strides = expression.overDomain(squeezedStrides(result.getType(), layout));
    store.vector = columns != 0 && squeezedShape(result.getType()).size() == shape.size();
    store.accumulates = context.accumulates(result);
    if (store.accumulates)
      k.markAccumulated(store.operand);
    Size size;
    for (size_t dim = 0; dim < squeezedShape(result.getType()).size(); ++dim)
      ShapedType::isDynamic(shape[dim]) ? void(size.sampled = true)
                                        : void(size.count *= shape[dim]);
    k.addCost(size, elementBytes(store.element));
    stores.push_back(store);
  }
  for (int64_t size : fusionGroup.lead)
    sizes.push_back(ShapedType::isDynamic(size) ? Size{1, true} : Size{size, false});
  for (const Node &node : nodes())
    phases = std::max(phases, node.phase + 1);
}

template <typename Visit> bool RowProgram::allStrides(Visit visit) {
  for (Node &node : expression.nodes)
    if (!node.strides.empty() && !visit(node.strides))
      return false;
  for (StoreNode &store : stores)
    if (!visit(store.strides))
      return false;
  return true;
}

void RowProgram::eraseDim(size_t dim) {
  allStrides([&](SmallVectorImpl<int64_t> &strides) {
    strides.erase(strides.begin() + dim);
    return true;
  });
}

/// Merges leading dimensions that every access treats as one. In elementwise clusters, short
/// columns are merged with leading dimensions.
void RowProgram::mergeDims() {
  for (size_t dim = sizes.size(); dim-- > 1;) {
    if (sizes[dim].sampled || !allStrides([&](SmallVectorImpl<int64_t> &s) {
          return s[dim - 1] == s[dim] * sizes[dim].count;
        }))
      continue;
    sizes[dim - 1] = Size{sizes[dim - 1].count * sizes[dim].count, sizes[dim - 1].sampled};
    sizes.erase(sizes.begin() + dim);
    // Keep the inner stride: the merged index counts inner elements.
    eraseDim(dim - 1);
  }
  bool elementwise = columns != 0;
  for (const Node &node : nodes())
    elementwise &= node.kind != Node::Reduce;
  for (const StoreNode &store : stores)
    elementwise &= store.vector;
  while (elementwise && columns < 256 && !sizes.empty() && !sizes.back().sampled &&
         columns * sizes.back().count <= 4096) {
    size_t last = sizes.size() - 1;
    if (!allStrides([&](SmallVectorImpl<int64_t> &s) { return s[last] == s[last + 1] * columns; }))
      break;
    columns *= sizes.back().count;
    sizes.pop_back();
    eraseDim(last);
  }
}

void RowProgram::markNeeded() {
  needed.assign(nodes().size(), 0);
  for (const StoreNode &store : stores)
    needed[store.node] = 1;
  for (size_t i = nodes().size(); i-- > 0;)
    if (needed[i])
      for (int input : nodes()[i].inputs)
        needed[input] = 1;
}

bool RowProgram::isExpensive(const Node &node) {
  if (node.kind == Node::Dropout)
    return true;
  return node.kind == Node::Compute &&
         (isa<math::MathDialect>(node.op->getDialect()) || isa<arith::DivFOp>(node.op)) &&
         !isa<math::AbsFOp, math::FmaOp>(node.op);
}

Value RowProgram::scalarOf(int index, ArrayRef<Value> indices) {
  if (scalars[index])
    return scalars[index];
  const Node &node = nodes()[index];
  assert(node.form != Form::Vector && node.kind != Node::Reduce && "evaluated by loops");
  SmallVector<Value> inputs;
  for (int input : node.inputs)
    inputs.push_back(scalarOf(input, indices));
  return scalars[index] = expression.evaluate(node, inputs, indices);
}

std::string RowProgram::hint() const {
  std::string name;
  for (Operation *op : fusionGroup.ops) {
    StringRef word = op->hasAttr(kCopyAttr) ? "copy" : op->getName().stripDialect();
    if (name.size() + word.size() > 40 || StringRef(name).contains(word))
      continue;
    name += (name.empty() ? "" : "_") + word.str();
  }
  return name;
}

int RowProgram::storeOf(int node) const {
  int found = -1;
  for (size_t s = 0; s < stores.size(); ++s)
    if (stores[s].node == node && stores[s].vector && !stores[s].accumulates &&
        stores[s].element == nodes()[size_t(node)].type)
      found = int(s);
  return found;
}
