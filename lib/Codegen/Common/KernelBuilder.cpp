#include "KernelBuilder.h"

#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace zorse;
using namespace zorse::codegen;

Size zorse::codegen::matmul(ArrayRef<Size> sizes) {
  Size all;
  for (const Size &size : sizes)
    all = Size{all.count * size.count, all.sampled || size.sampled};
  return all;
}

KernelBuilder::KernelBuilder(MLIRContext *context, Resolve resolve)
    : b(context), loc(UnknownLoc::get(context)), module(ModuleOp::create(UnknownLoc::get(context))),
      resolve(std::move(resolve)) {
  b.setInsertionPointToStart(module->getBody());
  auto type = LLVM::LLVMFunctionType::get(LLVM::LLVMVoidType::get(context), {});
  inner = LLVM::LLVMFuncOp::create(b, loc, "body", type, LLVM::Linkage::Internal);
  entry = b.createBlock(&inner.getBody());
  Type word = b.getI64Type();
  for (Value *value : {&rows, &begin, &end, &accumulate, &sampleBase, &rngIdBase})
    *value = entry->addArgument(word, loc);
  b.setInsertionPointToStart(entry);
}

unsigned KernelBuilder::operand(const Place &place) {
  auto [pointer, reach] = place;
  auto &operands = *kernel.launch.mutable_operands();
  for (int i = 0; i < operands.size(); ++i)
    if (operands[i].argument() == pointer.argument() && operands[i].fixed() == pointer.fixed() &&
        operands[i].per_row() == pointer.per_row()) {
      reaches[i].set_fixed(std::max(reaches[i].fixed(), reach.fixed()));
      reaches[i].set_per_row(std::max(reaches[i].per_row(), reach.per_row()));
      return i;
    }
  *operands.Add() = pointer;
  reaches.push_back(reach);
  written.push_back(false);
  pointers.push_back(entry->addArgument(LLVM::LLVMPointerType::get(b.getContext()), loc));
  return operands.size() - 1;
}

void KernelBuilder::markAccumulated(unsigned operand) {
  auto &list = *kernel.launch.mutable_accumulates();
  if (!llvm::is_contained(list, operand))
    list.Add(operand);
}

Value KernelBuilder::accumulates(unsigned operand) {
  Value bit = arith::ShRUIOp::create(b, loc, accumulate, i64(operand));
  return arith::TruncIOp::create(b, loc, b.getI1Type(), bit);
}

static void addTo(bundle::AffineSize &sum, const Size &size, int64_t factor = 1) {
  size.sampled ? sum.set_per_row(sum.per_row() + size.count * factor)
               : sum.set_fixed(sum.fixed() + size.count * factor);
}

void KernelBuilder::addCost(const Size &elements, int64_t bytes) {
  addTo(*kernel.launch.mutable_cost(), elements, bytes);
}

void KernelBuilder::addMatmulFlops(const Size &operations) {
  addTo(*kernel.launch.mutable_matmul_flops(), operations);
}

static bool isHalf(Type type) { return type.isBF16() || type.isF16(); }

Type KernelBuilder::computeType(Type element) {
  return isHalf(element) ? Float32Type::get(element.getContext()) : element;
}

Type KernelBuilder::memoryType(Type element) const {
  return element.isInteger(1) || isHalf(element)
             ? IntegerType::get(element.getContext(), isHalf(element) ? 16 : 8)
             : element;
}

Value KernelBuilder::number(Type type, double value) {
  if (isa<FloatType>(type))
    return arith::ConstantOp::create(b, loc, b.getFloatAttr(type, value));
  return arith::ConstantOp::create(b, loc, b.getIntegerAttr(type, static_cast<int64_t>(value)));
}

Value KernelBuilder::inRange(Value x, Value first, Value last) {
  Value low = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sge, x, first),
        high = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, x, last);
  return arith::AndIOp::create(b, loc, low, high);
}

Value KernelBuilder::andNot(Value condition, Value x, int64_t number) {
  return arith::AndIOp::create(
      b, loc, condition, arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ne, x, i64(number)));
}

void KernelBuilder::ifTrue(Value condition, function_ref<void()> body) {
  auto op = scf::IfOp::create(b, loc, condition, /*withElseRegion=*/false);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(op.thenBlock());
  body();
}

SmallVector<Value> KernelBuilder::ifElse(Value condition, ArrayRef<Value> otherwise,
                                         function_ref<SmallVector<Value>()> body) {
  if (otherwise.empty()) {
    ifTrue(condition, [&] { (void)body(); });
    return {};
  }
  auto op = scf::IfOp::create(b, loc, ValueRange(otherwise).getTypes(), condition,
                              /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(op.thenBlock());
  scf::YieldOp::create(b, loc, body());
  b.setInsertionPointToStart(op.elseBlock());
  scf::YieldOp::create(b, loc, otherwise);
  return SmallVector<Value>(op.getResults().begin(), op.getResults().end());
}

Value KernelBuilder::offset(ArrayRef<Value> indices, ArrayRef<int64_t> strides) {
  Value sum;
  for (auto [index, stride] : llvm::zip(indices, strides))
    if (stride != 0)
      sum = add(sum, mul(index, stride));
  return sum ? sum : i64(0);
}

Value KernelBuilder::elementPointer(Value base, Value offset, Type element) {
  return LLVM::GEPOp::create(b, loc, base.getType(), memoryType(element), base,
                             LLVM::GEPArg(offset));
}

Value KernelBuilder::fromMemory(Value stored, Type element) {
  if (element.isInteger(1))
    return arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ne, stored,
                                 arith::ConstantIntOp::create(b, loc, 0, 8));
  return computeType(element) != element ? widenHalf(stored, element) : stored;
}

Value KernelBuilder::toMemory(Value value, Type element) {
  if (element.isInteger(1))
    return arith::ExtUIOp::create(b, loc, b.getI8Type(), value);
  return computeType(element) != element ? narrowHalf(value, element) : value;
}

void KernelBuilder::noteWritten(Value base) {
  for (auto [pointer, isWritten] : llvm::zip(pointers, written))
    isWritten |= pointer == base;
}

Value KernelBuilder::load(Value base, Value offset, Type element) {
  return fromMemory(LLVM::LoadOp::create(b, loc, memoryType(element),
                                         elementPointer(base, offset, element),
                                         elementBytes(element)),
                    element);
}

void KernelBuilder::store(Value value, Value base, Value offset, Type element, Value accumulate) {
  if (accumulate) {
    // The store fetches the cache line anyway, so reading it costs nothing. The select keeps
    // garbage, including NaN, out of the result.
    Value old = load(base, offset, element);
    Value sum = combine(ReduceKind::Sum, old, value);
    value = arith::SelectOp::create(b, loc, accumulate, sum, value);
  }
  LLVM::StoreOp::create(b, loc, toMemory(value, element), elementPointer(base, offset, element),
                        elementBytes(element));
  noteWritten(base);
}

Value KernelBuilder::global(DenseElementsAttr data) {
  Type element = data.getElementType();
  DenseElementsAttr flat;
  auto count = static_cast<int64_t>(data.getNumElements());
  if (element.isInteger(1)) {
    SmallVector<int8_t> bytes;
    for (bool bit : data.getValues<bool>())
      bytes.push_back(bit);
    flat = DenseElementsAttr::get(RankedTensorType::get({count}, b.getI8Type()),
                                  ArrayRef<int8_t>(bytes));
  } else {
    flat = data.reshape(RankedTensorType::get({count}, element));
    if (memoryType(element) != element)
      flat = flat.bitcast(memoryType(element));
  }
  return declare("table", LLVM::LLVMArrayType::get(memoryType(element), count), flat,
                 /*isConstant=*/true, /*alignment=*/64);
}

Value KernelBuilder::declare(StringRef name, Type array, Attribute value, bool isConstant,
                             unsigned alignment, unsigned addressSpace, LLVM::Linkage linkage) {
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(module->getBody());
  std::string symbol = name.str();
  if (linkage == LLVM::Linkage::Internal)
    symbol += std::to_string(globals++);
  LLVM::GlobalOp::create(b, loc, array, isConstant, linkage, symbol, value, alignment,
                         addressSpace);
  b.setInsertionPointToStart(entry);
  return LLVM::AddressOfOp::create(b, loc, LLVM::LLVMPointerType::get(b.getContext(), addressSpace),
                                   symbol);
}

SmallVector<Value>
KernelBuilder::loop(Value from, Value to, ArrayRef<Value> carried,
                    function_ref<SmallVector<Value>(Value, ArrayRef<Value>)> body, Value step) {
  auto op = scf::ForOp::create(b, loc, from, to, step ? step : i64(1), carried);
  OpBuilder::InsertionGuard guard(b);
  Block *block = op.getBody();
  b.setInsertionPointToStart(block);
  SmallVector<Value> arguments(op.getRegionIterArgs().begin(), op.getRegionIterArgs().end());
  SmallVector<Value> next = body(op.getInductionVar(), arguments);
  if (!carried.empty()) {
    b.setInsertionPointToEnd(block);
    scf::YieldOp::create(b, loc, next);
  }
  return SmallVector<Value>(op.getResults().begin(), op.getResults().end());
}

void KernelBuilder::loop(Value from, Value to, function_ref<void(Value)> body) {
  loop(from, to, {}, [&](Value index, ArrayRef<Value>) {
    body(index);
    return SmallVector<Value>();
  });
}

SmallVector<Value> KernelBuilder::delinearize(Value index, ArrayRef<Size> sizes) {
  SmallVector<Value> indices(sizes.size());
  for (size_t dim = sizes.size(); dim-- > 0;) {
    if (dim == 0) {
      indices[0] = index;
    } else {
      Value divisor = size(sizes[dim]);
      indices[dim] = arith::RemUIOp::create(b, loc, index, divisor);
      index = arith::DivUIOp::create(b, loc, index, divisor);
    }
  }
  return indices;
}

Value KernelBuilder::combine(ReduceKind kind, Value x, Value y) {
  auto flags = arith::FastMathFlags::reassoc | arith::FastMathFlags::contract;
  if (isa<FloatType>(x.getType())) {
    switch (kind) {
    case ReduceKind::Sum:
      return arith::AddFOp::create(b, loc, x, y, flags);
    case ReduceKind::Prod:
      return arith::MulFOp::create(b, loc, x, y, flags);
    case ReduceKind::Max:
      return arith::MaximumFOp::create(b, loc, x, y);
    case ReduceKind::Min:
      return arith::MinimumFOp::create(b, loc, x, y);
    }
  }
  switch (kind) {
  case ReduceKind::Sum:
    return arith::AddIOp::create(b, loc, x, y);
  case ReduceKind::Prod:
    return arith::MulIOp::create(b, loc, x, y);
  case ReduceKind::Max:
    return arith::MaxSIOp::create(b, loc, x, y);
  case ReduceKind::Min:
    return arith::MinSIOp::create(b, loc, x, y);
  }
  llvm_unreachable("kinds are listed");
}

Value KernelBuilder::identity(ReduceKind kind, Type type) {
  if (kind == ReduceKind::Sum || kind == ReduceKind::Prod)
    return number(type, kind == ReduceKind::Prod);
  bool max = kind == ReduceKind::Max;
  if (auto floating = dyn_cast<FloatType>(type))
    return arith::ConstantOp::create(
        b, loc, FloatAttr::get(type, APFloat::getInf(floating.getFloatSemantics(), max)));
  unsigned bits = type.getIntOrFloatBitWidth();
  return arith::ConstantOp::create(b, loc,
                                   IntegerAttr::get(type, max ? APInt::getSignedMinValue(bits)
                                                              : APInt::getSignedMaxValue(bits)));
}

void KernelBuilder::close(const Size &points, StringRef inlining, bool contract) {
  MLIRContext *context = b.getContext();
  b.setInsertionPointToEnd(entry);
  LLVM::ReturnOp::create(b, loc, ValueRange());
  SmallVector<Type> types(entry->getArgumentTypes().begin(), entry->getArgumentTypes().end());
  inner.setFunctionType(LLVM::LLVMFunctionType::get(LLVM::LLVMVoidType::get(context), types));
  for (unsigned i = types.size() - pointers.size(); i < types.size(); ++i)
    inner.setArgAttr(i, LLVM::LLVMDialect::getNoAliasAttrName(), b.getUnitAttr());
  auto narrows = [](Operation *op) {
    return isa<arith::TruncFOp>(op) && isHalf(op->getResult(0).getType());
  };
  inner.walk([&](Operation *op) {
    auto fast = dyn_cast<arith::ArithFastMathInterface>(op);
    // Roundings are kept: "contract" may remove pairs of them.
    if (!fast || !fast.getFastMathFlagsAttr() || isa<arith::TruncFOp, arith::ExtFOp>(op))
      return;
    arith::FastMathFlags flags = fast.getFastMathFlagsAttr().getValue();
    if (contract && flags == arith::FastMathFlags::none &&
        !isHalf(getElementTypeOrSelf(op->getResult(0))))
      flags = arith::FastMathFlags::contract;
    // LLVM computes in 16 bits if the result is rounded to 16 bits immediately. Such operations
    // must not be contracted with each other.
    if (!op->use_empty() && llvm::all_of(op->getUsers(), narrows))
      flags = flags & ~(isa<arith::MulFOp>(op)
                            ? arith::FastMathFlags::contract | arith::FastMathFlags::reassoc
                            : arith::FastMathFlags::reassoc);
    op->setAttr(fast.getFastMathAttrName(), arith::FastMathFlagsAttr::get(context, flags));
  });
  inner.setPassthroughAttr(b.getStrArrayAttr(inlining));
  b.setInsertionPointToEnd(module->getBody());
  SmallVector<int64_t> needs = {int64_t(pointers.size()), points.sampled ? 0 : points.count,
                                points.sampled ? points.count : 0};
  for (auto [reach, isWritten] : llvm::zip(reaches, written))
    needs.append({reach.fixed(), reach.per_row(), 0, isWritten});
  LLVM::GlobalOp::create(b, loc, LLVM::LLVMArrayType::get(b.getI64Type(), needs.size()),
                         /*isConstant=*/true, LLVM::Linkage::External, "needs",
                         b.getI64TensorAttr(needs), /*alignment=*/8);
}

Kernel KernelBuilder::take(StringRef hint, const Size &points) {
  kernel.module = std::move(module);
  kernel.hint = hint.str();
  addTo(*kernel.launch.mutable_iterations(), points);
  return std::move(kernel);
}
