#include "KernelBuilder.h"

#include "zorse/runtime/abi/CudaAbi.h"
#include "zorse/runtime/abi/KernelAbi.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

#include "llvm/Support/raw_ostream.h"

#include <cstddef>

using namespace mlir;
using namespace zorse;
using namespace zorse::codegen;

KernelBuilder::KernelBuilder(MLIRContext *context, Resolve resolve, HalfConversions conversions)
    : b(context), loc(UnknownLoc::get(context)), conversions(conversions), module(ModuleOp::create(UnknownLoc::get(context))),
      resolve(std::move(resolve)) {
  b.setInsertionPointToStart(module->getBody());
  auto type = LLVM::LLVMFunctionType::get(LLVM::LLVMVoidType::get(context), {});
  inner = LLVM::LLVMFuncOp::create(b, loc, "body", type, LLVM::Linkage::Internal);
  entry = b.createBlock(&inner.getBody());
  Type word = b.getI64Type();
  for (Value *value : {&rows, &begin, &end, &accumulate, &sampleBase, &instanceBase})
    *value = entry->addArgument(word, loc);
  b.setInsertionPointToStart(entry);
}

unsigned KernelBuilder::operand(const Place &place) {
  auto [pointer, reach] = place;
  auto &operands = *kernel.launch.mutable_operands();
  for (int i = 0; i < operands.size(); ++i)
    if (operands[i].slot() == pointer.slot() && operands[i].fixed() == pointer.fixed() && operands[i].per_row() == pointer.per_row()) {
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

void KernelBuilder::addCost(const Size &elements, int64_t bytes) {
  bundle::Extent &cost = *kernel.launch.mutable_cost();
  if (elements.sampled)
    cost.set_per_row(cost.per_row() + elements.count * bytes);
  else
    cost.set_fixed(cost.fixed() + elements.count * bytes);
}

void KernelBuilder::addProductFlops(const Size &operations) {
  bundle::Extent &flops = *kernel.launch.mutable_product_flops();
  if (operations.sampled)
    flops.set_per_row(flops.per_row() + operations.count);
  else
    flops.set_fixed(flops.fixed() + operations.count);
}

Type KernelBuilder::computeType(Type element) { return element.isBF16() || element.isF16() ? Float32Type::get(element.getContext()) : element; }

Type KernelBuilder::memoryType(Type element) const {
  bool half = computeType(element) != element && !conversions.has(element);
  return element.isInteger(1) || half ? IntegerType::get(element.getContext(), half ? 16 : 8) : element;
}

Value KernelBuilder::i64(int64_t value) { return arith::ConstantIntOp::create(b, loc, value, 64); }

Value KernelBuilder::size(const Size &size) { return size.sampled ? mul(rows, size.count) : i64(size.count); }

Value KernelBuilder::number(Type type, double value) {
  if (isa<FloatType>(type))
    return arith::ConstantOp::create(b, loc, b.getFloatAttr(type, value));
  return arith::ConstantOp::create(b, loc, b.getIntegerAttr(type, static_cast<int64_t>(value)));
}

Value KernelBuilder::add(Value x, Value y) {
  if (!x)
    return y;
  return arith::AddIOp::create(b, loc, x, y);
}

Value KernelBuilder::mul(Value x, int64_t factor) { return factor == 1 ? x : Value(arith::MulIOp::create(b, loc, x, i64(factor))); }

Value KernelBuilder::sub(Value x, Value y) { return arith::SubIOp::create(b, loc, x, y); }

Value KernelBuilder::smaller(Value x, Value y) { return arith::MinSIOp::create(b, loc, x, y); }

Value KernelBuilder::select(Value condition, Value x, Value y) { return arith::SelectOp::create(b, loc, condition, x, y); }

Value KernelBuilder::inRange(Value x, Value first, Value last) {
  Value low = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sge, x, first),
        high = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, x, last);
  return arith::AndIOp::create(b, loc, low, high);
}

Value KernelBuilder::andNot(Value condition, Value x, int64_t number) {
  return arith::AndIOp::create(b, loc, condition, arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ne, x, i64(number)));
}

void KernelBuilder::ifTrue(Value condition, function_ref<void()> body) {
  auto op = scf::IfOp::create(b, loc, condition, /*withElseRegion=*/false);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(op.thenBlock());
  body();
}

SmallVector<Value> KernelBuilder::ifElse(Value condition, ArrayRef<Value> otherwise, function_ref<SmallVector<Value>()> body) {
  if (otherwise.empty()) {
    ifTrue(condition, [&] { (void)body(); });
    return {};
  }
  auto op = scf::IfOp::create(b, loc, ValueRange(otherwise).getTypes(), condition, /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(op.thenBlock());
  scf::YieldOp::create(b, loc, body());
  b.setInsertionPointToStart(op.elseBlock());
  scf::YieldOp::create(b, loc, otherwise);
  return SmallVector<Value>(op.getResults().begin(), op.getResults().end());
}

Value KernelBuilder::widen(Value x) { return x.getType().isInteger(64) ? x : Value(arith::ExtSIOp::create(b, loc, b.getI64Type(), x)); }

Value KernelBuilder::offset(ArrayRef<Value> indices, ArrayRef<int64_t> strides) {
  Value sum;
  for (auto [index, stride] : llvm::zip(indices, strides))
    if (stride != 0)
      sum = add(sum, mul(index, stride));
  return sum ? sum : i64(0);
}

static Value elementPointer(KernelBuilder &k, Value base, Value offset, Type element) {
  return LLVM::GEPOp::create(k.b, k.loc, base.getType(), k.memoryType(element), base, LLVM::GEPArg(offset));
}

Value KernelBuilder::fromMemory(Value stored, Type element) {
  if (element.isInteger(1))
    return arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ne, stored, arith::ConstantIntOp::create(b, loc, 0, 8));
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
  return fromMemory(LLVM::LoadOp::create(b, loc, memoryType(element), elementPointer(*this, base, offset, element), elementBytes(element)), element);
}

SmallVector<Value> KernelBuilder::loadMany(Value base, Value offset, Type element, int64_t count) {
  const bool inWords = comesInWords(element, count);
  auto type = inWords ? VectorType::get({count / 2}, b.getI32Type()) : VectorType::get({count}, memoryType(element));
  Value all = LLVM::LoadOp::create(b, loc, type, elementPointer(*this, base, offset, element), unsigned(count * elementBytes(element)));
  SmallVector<Value> values;
  if (inWords) {
    for (int64_t i = 0; i < count / 2; ++i)
      values.append(widenWord(LLVM::ExtractElementOp::create(b, loc, all, i64(i))));
    return values;
  }
  for (int64_t i = 0; i < count; ++i)
    values.push_back(fromMemory(LLVM::ExtractElementOp::create(b, loc, all, i64(i)), element));
  return values;
}

void KernelBuilder::store(Value value, Value base, Value offset, Type element, Value accumulate) {
  if (accumulate) {
    // The line is fetched for the store anyway, so reading it costs nothing, and a select keeps garbage (NaN too) out.
    Value old = load(base, offset, element);
    Value sum = combine(ReduceKind::Sum, old, value);
    value = arith::SelectOp::create(b, loc, accumulate, sum, value);
  }
  LLVM::StoreOp::create(b, loc, toMemory(value, element), elementPointer(*this, base, offset, element), elementBytes(element));
  noteWritten(base);
}

void KernelBuilder::storeMany(ArrayRef<Value> values, Value base, Value offset, Type element, Value accumulate) {
  const auto count = static_cast<int64_t>(values.size());
  SmallVector<Value> sums(values);
  if (accumulate)
    for (auto [sum, old] : llvm::zip(sums, loadMany(base, offset, element, count)))
      sum = arith::SelectOp::create(b, loc, accumulate, combine(ReduceKind::Sum, old, sum), sum);
  SmallVector<Value> stored;
  if (comesInWords(element, count))
    for (size_t i = 0; i < sums.size(); i += 2)
      stored.push_back(narrowWord(sums[i], sums[i + 1]));
  else
    for (Value sum : sums)
      stored.push_back(toMemory(sum, element));
  Value all = LLVM::UndefOp::create(b, loc, VectorType::get({int64_t(stored.size())}, stored[0].getType()));
  for (auto [i, one] : llvm::enumerate(stored))
    all = LLVM::InsertElementOp::create(b, loc, all, one, i64(int64_t(i)));
  LLVM::StoreOp::create(b, loc, all, elementPointer(*this, base, offset, element), unsigned(count * elementBytes(element)));
  noteWritten(base);
}

Value KernelBuilder::scratch(Type type, int64_t count) {
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(entry);
  return LLVM::AllocaOp::create(b, loc, LLVM::LLVMPointerType::get(b.getContext()), memoryType(type), i64(count), 64);
}

Value KernelBuilder::global(DenseElementsAttr data) {
  Type element = data.getElementType();
  DenseElementsAttr flat;
  auto count = static_cast<int64_t>(data.getNumElements());
  if (element.isInteger(1)) {
    SmallVector<int8_t> bytes;
    for (bool bit : data.getValues<bool>())
      bytes.push_back(bit);
    flat = DenseElementsAttr::get(RankedTensorType::get({count}, b.getI8Type()), ArrayRef<int8_t>(bytes));
  } else {
    flat = data.reshape(RankedTensorType::get({count}, element));
    if (memoryType(element) != element)
      flat = flat.bitcast(memoryType(element));
  }
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(module->getBody());
  std::string name = "table" + std::to_string(globals++);
  auto type = LLVM::LLVMArrayType::get(memoryType(element), count);
  LLVM::GlobalOp::create(b, loc, type, /*isConstant=*/true, LLVM::Linkage::Internal, name, flat, /*alignment=*/64);
  b.setInsertionPointToStart(entry);
  return LLVM::AddressOfOp::create(b, loc, LLVM::LLVMPointerType::get(b.getContext()), name);
}

SmallVector<Value> KernelBuilder::loop(Value from, Value to, ArrayRef<Value> carried, function_ref<SmallVector<Value>(Value, ArrayRef<Value>)> body,
                                       Value step) {
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
    return arith::ConstantOp::create(b, loc, FloatAttr::get(type, APFloat::getInf(floating.getFloatSemantics(), max)));
  unsigned bits = type.getIntOrFloatBitWidth();
  return arith::ConstantOp::create(b, loc, IntegerAttr::get(type, max ? APInt::getSignedMinValue(bits) : APInt::getSignedMaxValue(bits)));
}

void KernelBuilder::emitNeeds(const Size &points) {
  SmallVector<int64_t> numbers = {int64_t(pointers.size()), points.sampled ? 0 : points.count, points.sampled ? points.count : 0};
  for (auto [reach, isWritten] : llvm::zip(reaches, written))
    numbers.append({reach.fixed(), reach.per_row(), 0, isWritten});
  auto count = static_cast<int64_t>(numbers.size());
  auto data = DenseElementsAttr::get(RankedTensorType::get({count}, b.getI64Type()), ArrayRef<int64_t>(numbers));
  LLVM::GlobalOp::create(b, loc, LLVM::LLVMArrayType::get(b.getI64Type(), count), /*isConstant=*/true, LLVM::Linkage::External, "needs", data,
                         /*alignment=*/8);
}

void KernelBuilder::emitEntry() {
  auto pointerType = LLVM::LLVMPointerType::get(b.getContext());
  Type word = b.getI64Type();
  auto outer = LLVM::LLVMFuncOp::create(
      b, loc, "kernel", LLVM::LLVMFunctionType::get(LLVM::LLVMVoidType::get(b.getContext()), {pointerType, pointerType, word, word, word}));
  Block *block = b.createBlock(&outer.getBody());
  Value operands = block->addArgument(pointerType, loc), call = block->addArgument(pointerType, loc);
  Value first = block->addArgument(word, loc), last = block->addArgument(word, loc), bits = block->addArgument(word, loc);
  b.setInsertionPointToStart(block);
  auto loadAt = [&](Value base, Type type, size_t index) -> Value {
    Value address = LLVM::GEPOp::create(b, loc, pointerType, type, base, LLVM::GEPArg(static_cast<int32_t>(index)));
    return LLVM::LoadOp::create(b, loc, type, address);
  };
  auto field = [&](size_t bytes) { return loadAt(call, word, bytes / sizeof(int64_t)); };
  SmallVector<Value> arguments = {field(offsetof(ZorseCallContext, rows)),        first, last, bits, field(offsetof(ZorseCallContext, sampleBase)),
                                  field(offsetof(ZorseCallContext, instanceBase))};
  for (size_t i = 0; i < pointers.size(); ++i)
    arguments.push_back(loadAt(operands, pointerType, i));
  LLVM::CallOp::create(b, loc, inner, arguments);
  LLVM::ReturnOp::create(b, loc, ValueRange());
}

static bool isHalf(Type type) { return type.isBF16() || type.isF16(); }

void KernelBuilder::close(bool contract) {
  MLIRContext *context = b.getContext();
  b.setInsertionPointToEnd(entry);
  LLVM::ReturnOp::create(b, loc, ValueRange());
  SmallVector<Type> types(entry->getArgumentTypes().begin(), entry->getArgumentTypes().end());
  inner.setFunctionType(LLVM::LLVMFunctionType::get(LLVM::LLVMVoidType::get(context), types));
  for (unsigned i = types.size() - pointers.size(); i < types.size(); ++i)
    inner.setArgAttr(i, LLVM::LLVMDialect::getNoAliasAttrName(), b.getUnitAttr());
  auto narrows = [](Operation *op) { return isa<arith::TruncFOp>(op) && isHalf(op->getResult(0).getType()); };
  inner.walk([&](Operation *op) {
    auto fast = dyn_cast<arith::ArithFastMathInterface>(op);
    if (!fast || !fast.getFastMathFlagsAttr() || isa<arith::TruncFOp, arith::ExtFOp>(op)) // roundings stay: "contract" might let pairs of them go
      return;
    arith::FastMathFlags flags = fast.getFastMathFlagsAttr().getValue();
    if (contract && flags == arith::FastMathFlags::none && !isHalf(getElementTypeOrSelf(op->getResult(0))))
      flags = arith::FastMathFlags::contract;
    // LLVM computes in 16 bits what is rounded to them right away, and such operations must not become one with each other.
    if (!op->use_empty() && llvm::all_of(op->getUsers(), narrows))
      flags = flags & ~(isa<arith::MulFOp>(op) ? arith::FastMathFlags::contract | arith::FastMathFlags::reassoc : arith::FastMathFlags::reassoc);
    op->setAttr(fast.getFastMathAttrName(), arith::FastMathFlagsAttr::get(context, flags));
  });
}

Kernel KernelBuilder::take(StringRef hint, const Size &points) {
  kernel.module = std::move(module);
  kernel.hint = hint.str();
  bundle::Extent &extent = *kernel.launch.mutable_points();
  points.sampled ? extent.set_per_row(points.count) : extent.set_fixed(points.count);
  return std::move(kernel);
}

Kernel KernelBuilder::finish(StringRef hint, const Size &points, bool contract) {
  close(contract);
  inner.setPassthroughAttr(b.getStrArrayAttr({"noinline"}));
  b.setInsertionPointToEnd(module->getBody());
  emitNeeds(points);
  emitEntry();
  return take(hint, points);
}

Value KernelBuilder::intrinsic(StringRef name, Type result, ArrayRef<Value> operands) {
  return LLVM::CallIntrinsicOp::create(b, loc, result, b.getStringAttr(name), operands).getResult(0);
}

Value KernelBuilder::threadIndex() {
  return arith::ExtUIOp::create(b, loc, b.getI64Type(), intrinsic("llvm.nvvm.read.ptx.sreg.tid.x", b.getI32Type(), {}));
}

Value KernelBuilder::blockIndex() {
  return arith::ExtUIOp::create(b, loc, b.getI64Type(), intrinsic("llvm.nvvm.read.ptx.sreg.ctaid.x", b.getI32Type(), {}));
}

static Value i32(KernelBuilder &k, int64_t value) { return arith::ConstantIntOp::create(k.b, k.loc, value, 32); }

/// What lane ^ `mask` has.
static Value exchange(KernelBuilder &k, Value x, int mask) {
  OpBuilder &b = k.b;
  Type type = x.getType(), word = b.getI32Type();
  auto move = [&](Value bits) { return k.intrinsic("llvm.nvvm.shfl.sync.bfly.i32", word, {i32(k, -1), bits, i32(k, mask), i32(k, 31)}); };
  const unsigned width = type.getIntOrFloatBitWidth();
  if (width == 32)
    return isa<FloatType>(type) ? Value(arith::BitcastOp::create(b, k.loc, type, move(arith::BitcastOp::create(b, k.loc, word, x)))) : move(x);
  assert(width == 64 && "reductions are of numbers of 32 or 64 bits");
  Value bits = isa<FloatType>(type) ? Value(arith::BitcastOp::create(b, k.loc, b.getI64Type(), x)) : x;
  Value low = move(arith::TruncIOp::create(b, k.loc, word, bits));
  Value high = move(arith::TruncIOp::create(b, k.loc, word, arith::ShRUIOp::create(b, k.loc, bits, k.i64(32))));
  bits = arith::OrIOp::create(b, k.loc, arith::ExtUIOp::create(b, k.loc, b.getI64Type(), low),
                              arith::ShLIOp::create(b, k.loc, arith::ExtUIOp::create(b, k.loc, b.getI64Type(), high), k.i64(32)));
  return isa<FloatType>(type) ? Value(arith::BitcastOp::create(b, k.loc, type, bits)) : bits;
}

Value KernelBuilder::combineWarp(ReduceKind kind, Value x) {
  for (int mask = 16; mask > 0; mask /= 2)
    x = combine(kind, x, exchange(*this, x, mask));
  return x;
}

Value KernelBuilder::shared(Type type, int64_t count) {
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(module->getBody());
  std::string name = "shared" + std::to_string(globals++);
  auto array = LLVM::LLVMArrayType::get(memoryType(type), count);
  LLVM::GlobalOp::create(b, loc, array, /*isConstant=*/false, LLVM::Linkage::Internal, name, Attribute(), /*alignment=*/16, /*addrSpace=*/3);
  b.setInsertionPointToStart(entry);
  return LLVM::AddressOfOp::create(b, loc, LLVM::LLVMPointerType::get(b.getContext(), 3), name);
}

Value KernelBuilder::launchShared(int64_t bytes) {
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(module->getBody());
  auto array = LLVM::LLVMArrayType::get(b.getI8Type(), 0);
  LLVM::GlobalOp::create(b, loc, array, /*isConstant=*/false, LLVM::Linkage::External, "launch_shared", Attribute(), /*alignment=*/128,
                         /*addrSpace=*/3);
  kernel.launch.set_shared_bytes(uint32_t(bytes));
  b.setInsertionPointToStart(entry);
  return LLVM::AddressOfOp::create(b, loc, LLVM::LLVMPointerType::get(b.getContext(), 3), "launch_shared");
}

Value KernelBuilder::common(Type type, int64_t count) {
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(module->getBody());
  std::string name = "common" + std::to_string(globals++);
  Type element = memoryType(type);
  auto zeros = DenseElementsAttr::get(RankedTensorType::get({count}, element), b.getZeroAttr(element));
  LLVM::GlobalOp::create(b, loc, LLVM::LLVMArrayType::get(element, count), /*isConstant=*/false, LLVM::Linkage::Internal, name, zeros,
                         /*alignment=*/16, /*addrSpace=*/1);
  b.setInsertionPointToStart(entry);
  return LLVM::AddressOfOp::create(b, loc, LLVM::LLVMPointerType::get(b.getContext(), 1), name);
}

Value KernelBuilder::loadCommon(Value base, Value offset, Type element) {
  // Volatile: neither a register nor the cache of one multiprocessor knows what others have stored.
  Value address = elementPointer(*this, base, offset, element);
  return fromMemory(LLVM::LoadOp::create(b, loc, memoryType(element), address, elementBytes(element), /*isVolatile=*/true), element);
}

Value KernelBuilder::comesLast(Value counters, Value index, Value blocks) {
  Type word = b.getI32Type();
  Value answer = shared(word, 1), before = arith::TruncIOp::create(b, loc, word, sub(blocks, i64(1)));
  barrier(); // all of this block's threads have stored
  ifTrue(arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, threadIndex(), i64(0)), [&] {
    LLVM::FenceOp::create(b, loc, LLVM::AtomicOrdering::acq_rel, "device");
    Value came = LLVM::AtomicRMWOp::create(b, loc, LLVM::AtomicBinOp::uinc_wrap, elementPointer(*this, counters, index, word), before,
                                           LLVM::AtomicOrdering::monotonic, "device");
    LLVM::FenceOp::create(b, loc, LLVM::AtomicOrdering::acq_rel, "device");
    store(came, answer, i64(0), word);
  });
  barrier();
  return arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, load(answer, i64(0), word), before);
}

void KernelBuilder::barrier() {
  LLVM::CallIntrinsicOp::create(b, loc, b.getStringAttr("llvm.nvvm.barrier.cta.sync.aligned.all"), ValueRange{i32(*this, 0)});
}

Value KernelBuilder::ballot(Value condition) { return intrinsic("llvm.nvvm.vote.ballot.sync", b.getI32Type(), {i32(*this, -1), condition}); }

Value KernelBuilder::combineBlock(ReduceKind kind, Value x, int threads) {
  x = combineWarp(kind, x);
  if (threads <= 32)
    return x;
  const int warps = threads / 32;
  Value places = shared(x.getType(), warps), thread = threadIndex();
  Value lane = arith::AndIOp::create(b, loc, thread, i64(31)), warp = arith::ShRUIOp::create(b, loc, thread, i64(5));
  Value first = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, lane, i64(0));
  ifTrue(first, [&] { store(x, places, warp, x.getType()); });
  barrier();
  // Every thread adds all of them up, in the same order.
  Value all = load(places, i64(0), x.getType());
  for (int w = 1; w < warps; ++w)
    all = combine(kind, all, load(places, i64(w), x.getType()));
  return all;
}

int64_t KernelBuilder::alignment(unsigned operand) const {
  const bundle::Pointer &pointer = kernel.launch.operands(int(operand));
  int64_t all = 64;
  for (int64_t bytes : {pointer.fixed(), pointer.per_row()})
    while (bytes % all)
      all /= 2;
  return all;
}

Kernel KernelBuilder::finishCuda(StringRef hint, const Size &points, int threads, int perThread, bool takesRegisters, bool contract) {
  close(contract);
  MLIRContext *context = b.getContext();
  inner.setPassthroughAttr(b.getStrArrayAttr({"alwaysinline"}));
  b.setInsertionPointToEnd(module->getBody());
  emitNeeds(points);
  auto global = LLVM::LLVMPointerType::get(context, 1), generic = LLVM::LLVMPointerType::get(context);
  SmallVector<Type> types(abi::kCudaLeadingParameters, b.getI64Type());
  types.append(pointers.size(), global);
  auto outer = LLVM::LLVMFuncOp::create(b, loc, "kernel", LLVM::LLVMFunctionType::get(LLVM::LLVMVoidType::get(context), types));
  outer.setCConv(LLVM::CConv::PTX_Kernel);
  SmallVector<Attribute> limits = {b.getStrArrayAttr({"nvvm.reqntid", std::to_string(threads)})};
  if (takesRegisters)
    limits.push_back(b.getStrArrayAttr({"nvvm.minctasm", "1"}));
  outer.setPassthroughAttr(b.getArrayAttr(limits));
  for (auto [i, pointer] : llvm::enumerate(pointers)) {
    const unsigned argument = abi::kCudaLeadingParameters + unsigned(i);
    outer.setArgAttr(argument, LLVM::LLVMDialect::getNoAliasAttrName(), b.getUnitAttr());
    outer.setArgAttr(argument, LLVM::LLVMDialect::getAlignAttrName(), b.getI64IntegerAttr(alignment(unsigned(i))));
    if (!written[i])
      outer.setArgAttr(argument, LLVM::LLVMDialect::getReadonlyAttrName(), b.getUnitAttr());
  }
  Block *block = outer.addEntryBlock(b);
  b.setInsertionPointToStart(block);
  Value thread = add(mul(blockIndex(), threads), threadIndex());
  SmallVector<Value> arguments = {block->getArgument(0), mul(thread, perThread), i64(0),
                                  block->getArgument(1), block->getArgument(2),  block->getArgument(3)};
  for (size_t i = 0; i < pointers.size(); ++i)
    arguments.push_back(LLVM::AddrSpaceCastOp::create(b, loc, generic, block->getArgument(abi::kCudaLeadingParameters + unsigned(i))));
  LLVM::CallOp::create(b, loc, inner, arguments);
  LLVM::ReturnOp::create(b, loc, ValueRange());
  kernel.launch.set_threads(uint32_t(threads));
  kernel.launch.set_per_thread(uint32_t(perThread));
  return take(hint, points);
}
