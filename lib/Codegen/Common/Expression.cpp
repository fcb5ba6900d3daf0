#include "Expression.h"

#include "Prepare.h"
#include "RandomNumbers.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "llvm/ADT/TypeSwitch.h"

#include <limits>

using namespace mlir;
using namespace zorse;
using namespace zorse::codegen;

Expression::Expression(KernelBuilder &k, const FusionPlan &plan, int cluster,
                       const BufferAliases &aliases, ArrayRef<int64_t> domain, bool hasColumns)
    : k(k), plan(plan), cluster(cluster), aliases(aliases), domain(domain), hasColumns(hasColumns) {
}

int Expression::add(Node node) {
  int phase = 0;
  for (int input : node.inputs) {
    node.form = std::max(node.form, nodes[input].form);
    phase = std::max(phase, nodes[input].phase);
  }
  if (node.kind == Node::Reduce) {
    node.form = Form::PerRow;
    ++phase;
  }
  node.phase = phase;
  nodes.push_back(std::move(node));
  return nodes.size() - 1;
}

SmallVector<int64_t, 6> Expression::overDomain(ArrayRef<int64_t> strides) const {
  SmallVector<int64_t, 6> result(strides.begin(), strides.end());
  result.resize(domain.size(), 0);
  return result;
}

Form Expression::formOf(ArrayRef<int64_t> strides) const {
  if (hasColumns && strides.back() != 0)
    return Form::PerElement;
  return llvm::any_of(strides, [](int64_t stride) { return stride != 0; }) ? Form::PerRow
                                                                           : Form::Uniform;
}

int Expression::constantNode(Value root, const Layout &layout, Type type) {
  auto data = cast<DenseElementsAttr>(cast<arith::ConstantOp>(root.getDefiningOp()).getValue());
  Type element = data.getElementType();
  Node node;
  node.type = KernelBuilder::computeType(element);
  if (data.isSplat()) {
    node.kind = Node::Constant;
    if (isa<FloatType>(element)) {
      bool lossy;
      APFloat number = data.getSplatValue<APFloat>();
      number.convert(cast<FloatType>(node.type).getFloatSemantics(), APFloat::rmNearestTiesToEven,
                     &lossy);
      node.attribute = FloatAttr::get(node.type, number);
    } else {
      node.attribute = IntegerAttr::get(element, data.getSplatValue<APInt>());
    }
    return add(node);
  }
  node.kind = Node::Load;
  node.element = element;
  node.strides = overDomain(squeezedStrides(type, layout));
  node.form = formOf(node.strides);
  node.base = k.global(data);
  // Index of the view's first element, as a constant input.
  if (layout.offset != 0) {
    Node first;
    first.kind = Node::Constant;
    first.type = k.b.getI64Type();
    first.attribute = k.b.getI64IntegerAttr(layout.offset);
    node.inputs.push_back(add(first));
    node.indexStride = 1;
  }
  return add(node);
}

static Size sizeOf(ArrayRef<int64_t> shape, ArrayRef<int64_t> strides) {
  Size size;
  for (auto [extent, stride] : llvm::zip(shape, strides)) {
    if (stride == 0)
      continue;
    if (ShapedType::isDynamic(extent))
      size.sampled = true;
    else
      size.count *= extent;
  }
  return size;
}

int Expression::load(Value value) {
  auto found = loaded.find(value);
  if (found != loaded.end())
    return found->second;
  std::optional<View> view = viewOf(value, aliases);
  assert(view && "places are claimed before");
  int result;
  if (Operation *op = view->root.getDefiningOp(); op && isa<arith::ConstantOp>(op)) {
    result = constantNode(view->root, view->layout, value.getType());
  } else {
    Node node;
    node.kind = Node::Load;
    node.element = getElementTypeOrSelf(view->root.getType()); // narrower if a view widens
    node.type = KernelBuilder::computeType(node.element);
    node.strides = overDomain(squeezedStrides(value.getType(), view->layout));
    node.form = formOf(node.strides);
    node.operand = k.operand(view->root, view->layout.offset);
    k.addCost(sizeOf(domain, node.strides), elementBytes(node.element));
    result = add(node);
  }
  loaded[value] = result;
  return result;
}

int Expression::use(Value operand) {
  Value root = rootOf(operand);
  Operation *op = root.getDefiningOp();
  if (auto mask = dyn_cast_or_null<CausalMaskOp>(op); mask && isMadeAgain(op))
    return useMask(mask, operand);
  if (op && isUniform(op)) {
    if (!defined.count(root))
      define(op);
    return defined.lookup(root);
  }
  if (op) {
    auto found = plan.fusionGroupOf.find(op);
    if (found != plan.fusionGroupOf.end() && found->second == cluster)
      return defined.lookup(root);
  }
  return load(operand);
}

int Expression::reduceNode(int input, ReduceKind kind) {
  Node node;
  node.kind = Node::Reduce;
  node.type = nodes[input].type;
  node.reduce = kind;
  node.inputs = {input};
  return add(node);
}

int Expression::indexNode(Type type, ArrayRef<int64_t> strides) {
  Node node;
  node.kind = Node::Index;
  node.type = type;
  node.strides.assign(strides.begin(), strides.end());
  node.form = formOf(node.strides);
  return add(node);
}

int Expression::columnNode() {
  if (column < 0) {
    SmallVector<int64_t, 6> strides(domain.size(), 0);
    strides.back() = 1;
    column = indexNode(k.b.getI32Type(), strides);
  }
  return column;
}

Node Expression::newNode(Operation *op) {
  Node node;
  node.element = getElementTypeOrSelf(op->getResult(0).getType());
  node.type = KernelBuilder::computeType(node.element);
  return node;
}

int Expression::isColumn(Value index, int64_t size) {
  Node equal;
  equal.kind = Node::IsEqual;
  equal.type = IntegerType::get(index.getContext(), 1);
  // A dimension of size 1 is not in the domain; the last dimension of the domain is then another
  // one.
  equal.inputs = {size == 1 ? zero(k.b.getI32Type()) : columnNode(), use(index)};
  return add(equal);
}

int Expression::zero(Type type) {
  Node constant;
  constant.kind = Node::Constant;
  constant.type = type;
  constant.attribute = isa<FloatType>(type) ? Attribute(FloatAttr::get(type, 0.0))
                                            : Attribute(IntegerAttr::get(type, 0));
  return add(constant);
}

int Expression::define(GatherOp gather) {
  Node node = newNode(gather);
  auto type = cast<RankedTensorType>(gather.getType());
  std::optional<View> table = viewOf(gather.getTable(), aliases);
  node.kind = Node::Load;
  node.element = getElementTypeOrSelf(table->root.getType());
  node.indexStride = table->layout.strides[0];
  // The first dimensions of the result are those of the indices, the others those of table rows.
  auto tableShape = cast<RankedTensorType>(gather.getTable().getType()).getShape();
  node.indexEnd = tableShape[0];
  size_t lead = squeezedShape(gather.getIndices().getType()).size();
  node.strides.assign(lead, 0);
  for (size_t dim = 1; dim < tableShape.size(); ++dim)
    if (tableShape[dim] != 1)
      node.strides.push_back(table->layout.strides[dim]);
  node.strides = overDomain(node.strides);
  node.form = formOf(node.strides);
  node.inputs = {use(gather.getIndices())};
  if (Operation *constant = table->root.getDefiningOp();
      constant && isa<arith::ConstantOp>(constant))
    node.base = k.global(cast<DenseElementsAttr>(cast<arith::ConstantOp>(constant).getValue()));
  else
    node.operand = k.operand(table->root, table->layout.offset);
  k.addCost(sizeOf(domain, overDomain(squeezedStrides(type, denseLayout(type)))),
            elementBytes(node.element));
  return add(node);
}

int Expression::define(TakeAlongDimOp take) {
  Node node = newNode(take);
  Value x = take.getX();
  const int64_t size = cast<RankedTensorType>(x.getType()).getShape().back();
  Operation *source = rootOf(x).getDefiningOp();
  auto found = source ? plan.fusionGroupOf.find(source) : plan.fusionGroupOf.end();
  bool inside = found != plan.fusionGroupOf.end() && found->second == cluster;
  if (inside || size == 1 || (source && (isa<arith::ConstantOp>(source) || isUniform(source)))) {
    // The element is selected while the kernel iterates over its vector. A vector of one element is
    // not a dimension of the domain, so no index is compared.
    int vector = use(x);
    Node pick;
    pick.kind = Node::Select;
    pick.type = node.type;
    pick.inputs = {isColumn(take.getIndices(), size), vector, zero(node.type)};
    return size == 1 ? add(pick) : reduceNode(add(pick), ReduceKind::Sum);
  }
  std::optional<View> view = viewOf(x, aliases);
  SmallVector<int64_t, 4> strides = squeezedStrides(x.getType(), view->layout);
  node.kind = Node::Load;
  node.element = getElementTypeOrSelf(view->root.getType());
  node.indexEnd = size;
  if (size != 1) {
    node.indexStride = strides.back();
    strides.pop_back();
  }
  node.strides = overDomain(strides);
  node.form = Form::PerRow;
  node.inputs = {use(take.getIndices())};
  node.operand = k.operand(view->root, view->layout.offset);
  return add(node);
}

int Expression::define(TakeAlongDimGradOp grad) {
  Node node = newNode(grad);
  node.kind = Node::Select;
  int hit = isColumn(grad.getIndices(), cast<RankedTensorType>(grad.getType()).getShape().back());
  node.inputs = {hit, use(grad.getDy()), zero(node.type)};
  return add(node);
}

int Expression::define(DropoutOp dropout) {
  Node node = newNode(dropout);
  auto type = cast<RankedTensorType>(dropout.getType());
  Node stream;
  stream.kind = Node::Stream;
  stream.type = IntegerType::get(k.b.getContext(), 64);
  stream.rngId = dropout.getRngId();
  stream.operand = k.operand(Value(), 0);
  stream.form = carriesSamples(type) ? Form::PerRow : Form::Uniform;
  stream.strides.assign(domain.size(), 0);
  if (carriesSamples(type))
    stream.strides[0] = 1; // the sample's number
  int keyed = add(stream);
  node.kind = Node::Dropout;
  node.inputs = {use(dropout.getX()), keyed};
  node.probability = dropout.getProbability().convertToDouble();
  node.operand = k.operand(Value(), 0);
  Layout layout = denseLayout(type);
  if (std::optional<ArrayRef<int64_t>> element = dropout.getElement()) {
    node.offset = element->front();
    layout.strides.assign(element->begin() + 1, element->end());
  }
  SmallVector<int64_t, 4> strides = squeezedStrides(type, layout);
  if (carriesSamples(type))
    strides[0] = 0;
  node.strides = overDomain(strides);
  node.form = formOf(node.strides);
  return add(node);
}

int Expression::define(SampleNumberOp number) {
  int index =
      indexNode(k.b.getI64Type(),
                overDomain(squeezedStrides(number.getType(), denseLayout(number.getType()))));
  nodes[index].ofStep = true;
  return index;
}

int Expression::define(CausalMaskOp mask) {
  // The mask's own indices. A dimension of size 1 is not in the domain; its index is always 0.
  return maskNode(mask, squeezedStrides(mask.getType(), Layout{0, {1, 0}}),
                  squeezedStrides(mask.getType(), Layout{0, {0, 1}}));
}

int Expression::maskNode(CausalMaskOp mask, ArrayRef<int64_t> query, ArrayRef<int64_t> key) {
  Node node = newNode(mask);
  auto type = cast<RankedTensorType>(mask.getType());
  node.kind = Node::CausalMask;
  node.offset = type.getDimSize(1) - type.getDimSize(0);
  node.window = mask.getWindow().value_or(0);
  node.hidden = mask.getHidden();
  int i = indexNode(IntegerType::get(k.b.getContext(), 64), overDomain(query));
  node.inputs = {i, indexNode(IntegerType::get(k.b.getContext(), 64), overDomain(key))};
  return add(node);
}

/// Adds a mask whose position in the domain is that of a view of it.
int Expression::useMask(CausalMaskOp mask, Value operand) {
  auto found = loaded.find(operand);
  if (found != loaded.end())
    return found->second;
  auto type = cast<RankedTensorType>(mask.getType());
  SmallVector<int> dims; // dimensions of the mask that are not 1
  for (int dim : {0, 1})
    if (type.getDimSize(dim) != 1)
      dims.push_back(dim);
  SmallVector<int64_t, 4> query, key;
  for (int dim : viewChainOf(operand)->dims) {
    query.push_back(dim >= 0 && dims[size_t(dim)] == 0);
    key.push_back(dim >= 0 && dims[size_t(dim)] == 1);
  }
  return loaded[operand] = maskNode(mask, query, key);
}

void Expression::define(Operation *op) {
  auto otherwise = [&](Operation *op) {
    Node node = newNode(op);
    node.kind = Node::Compute;
    node.op = op;
    for (Value operand : op->getOperands())
      node.inputs.push_back(use(operand));
    return add(node);
  };
  int result = op->hasAttr(kCopyAttr)
                   ? use(op->getOperand(0))
                   : llvm::TypeSwitch<Operation *, int>(op)
                         .Case([&](ReduceOp reduce) {
                           return reduceNode(use(reduce.getX()), reduce.getKind());
                         })
                         .Case<GatherOp, TakeAlongDimOp, TakeAlongDimGradOp, SampleNumberOp,
                               DropoutOp, CausalMaskOp>([&](auto known) { return define(known); })
                         .Default(otherwise);
  defined[op->getResult(0)] = result;
}

SmallVector<Value>
Expression::evaluateLoads(const Node &node, ArrayRef<Value> inputs, ArrayRef<Value> indices,
                          function_ref<SmallVector<Value>(Value base, Value offset)> load) {
  Value offset = k.offset(indices, node.strides),
        base = node.operand < 0 ? node.base : k.pointer(node.operand), inside;
  if (!inputs.empty()) {
    Value index = k.widen(inputs[0]);
    if (node.indexEnd > 0) {
      inside = k.inRange(index, k.i64(0), k.i64(node.indexEnd));
      index = k.select(inside, index, k.i64(0));
    }
    offset = k.add(offset, k.mul(index, node.indexStride));
  }
  SmallVector<Value> values = load(base, offset);
  // An out-of-range index reads nothing and gives NaN, so that the error is visible.
  for (Value &value : values)
    if (inside && isa<FloatType>(value.getType()))
      value = k.select(inside, value,
                       k.number(value.getType(), std::numeric_limits<double>::quiet_NaN()));
  return values;
}

Type Expression::roundsTo(const Node &node) {
  if (node.kind != Node::Compute)
    return {};
  if (auto round = dyn_cast<RoundOp>(node.op))
    return round.getTo();
  // Half precision is computed in f32. Widening changes nothing; narrowing rounds here, even if the
  // result is never stored.
  return isa<arith::TruncFOp>(node.op) && node.type != node.element ? node.element : Type();
}

Value Expression::evaluate(const Node &node, ArrayRef<Value> inputs, ArrayRef<Value> indices) {
  OpBuilder &b = k.b;
  auto toI32 = [&](Value v) -> Value {
    return v.getType().isInteger(32) ? v
                                     : Value(arith::TruncIOp::create(b, k.loc, b.getI32Type(), v));
  };
  switch (node.kind) {
  case Node::Constant:
    return arith::ConstantOp::create(b, k.loc, cast<TypedAttr>(node.attribute));
  case Node::Load:
    return evaluateLoads(node, inputs, indices, [&](Value base, Value offset) {
      return SmallVector<Value>{k.load(base, offset, node.element)};
    })[0];
  case Node::Compute: {
    if (Type half = roundsTo(node);
        half && (isa<RoundOp>(node.op) || inputs[0].getType() == node.type))
      return k.round(inputs[0], half);
    if (isa<arith::ExtFOp>(node.op) && inputs[0].getType() == node.type)
      return inputs[0];
    OperationState state(k.loc, node.op->getName(), inputs, {node.type}, node.op->getAttrs());
    Operation *op = b.create(state);
    op->removeDiscardableAttr(kGroupAttr);
    return op->getResult(0);
  }
  case Node::Index: {
    Value index = k.offset(indices, node.strides);
    if (node.ofStep)
      index = k.add(k.sampleBase, index);
    return node.type.isInteger(32) ? toI32(index) : index;
  }
  case Node::CausalMask: {
    Value last = k.add(inputs[0], k.i64(node.offset));
    Value visible = arith::CmpIOp::create(b, k.loc, arith::CmpIPredicate::sle, inputs[1], last);
    if (node.window) {
      Value first = arith::SubIOp::create(b, k.loc, last, k.i64(node.window));
      Value inside = arith::CmpIOp::create(b, k.loc, arith::CmpIPredicate::sgt, inputs[1], first);
      visible = arith::AndIOp::create(b, k.loc, visible, inside);
    }
    if (node.type.isInteger(1))
      return visible;
    return arith::SelectOp::create(b, k.loc, visible, k.number(node.type, 0.0),
                                   k.number(node.type, node.hidden));
  }
  case Node::IsEqual:
    if (auto sum = inputs[0].getDefiningOp<arith::TruncIOp>()) // one of several columns: each is
                                                               // compared with a constant
      if (auto column = sum.getIn().getDefiningOp<arith::AddIOp>();
          column && column.getRhs().getDefiningOp<arith::ConstantOp>())
        return arith::CmpIOp::create(
            b, k.loc, arith::CmpIPredicate::eq,
            arith::SubIOp::create(b, k.loc, toI32(inputs[1]), toI32(column.getLhs())),
            toI32(column.getRhs()));
    return arith::CmpIOp::create(b, k.loc, arith::CmpIPredicate::eq, toI32(inputs[0]),
                                 toI32(inputs[1]));
  case Node::Select:
    return arith::SelectOp::create(b, k.loc, inputs[0], inputs[1], inputs[2]);
  case Node::Stream:
    return randomStream(k, unsigned(node.operand), node.rngId,
                        node.form == Form::Uniform ? Value() : k.offset(indices, node.strides));
  case Node::Dropout: {
    const DropoutRule rule = dropoutRule(k, unsigned(node.operand), node.probability, node.type);
    Value element = k.add(k.offset(indices, node.strides), k.i64(node.offset));
    Value keep = isKept(k, inputs[1], element, rule);
    Value scaled = arith::MulFOp::create(b, k.loc, inputs[0], rule.factor);
    return k.select(keep, scaled, k.number(node.type, 0.0));
  }
  case Node::Reduce:
    break;
  }
  llvm_unreachable("reductions are loops");
}
