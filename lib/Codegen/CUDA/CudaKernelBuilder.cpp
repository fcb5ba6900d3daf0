#include "CudaKernelBuilder.h"

#include "zorse/runtime/abi/CudaAbi.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace zorse;
using namespace zorse::codegen;
using namespace zorse::codegen::cuda;

Value CudaKernelBuilder::intrinsic(StringRef name, Type result, ArrayRef<Value> operands) {
  return LLVM::CallIntrinsicOp::create(b, loc, result, b.getStringAttr(name), operands)
      .getResult(0);
}

void CudaKernelBuilder::effect(StringRef name, ArrayRef<Value> operands) {
  LLVM::CallIntrinsicOp::create(b, loc, b.getStringAttr(name), operands);
}

Value CudaKernelBuilder::threadIndex() {
  return arith::ExtUIOp::create(b, loc, b.getI64Type(),
                                intrinsic("llvm.nvvm.read.ptx.sreg.tid.x", b.getI32Type(), {}));
}

Value CudaKernelBuilder::blockIndex() {
  return arith::ExtUIOp::create(b, loc, b.getI64Type(),
                                intrinsic("llvm.nvvm.read.ptx.sreg.ctaid.x", b.getI32Type(), {}));
}

Value CudaKernelBuilder::exchange(Value x, int mask) {
  Type type = x.getType(), word = b.getI32Type();
  auto move = [&](Value bits) {
    return intrinsic("llvm.nvvm.shfl.sync.bfly.i32", word, {i32(-1), bits, i32(mask), i32(31)});
  };
  const unsigned width = type.getIntOrFloatBitWidth();
  if (width == 32)
    return isa<FloatType>(type)
               ? Value(arith::BitcastOp::create(b, loc, type,
                                                move(arith::BitcastOp::create(b, loc, word, x))))
               : move(x);
  assert(width == 64 && "reductions are of numbers of 32 or 64 bits");
  Value bits = isa<FloatType>(type) ? Value(arith::BitcastOp::create(b, loc, b.getI64Type(), x))
                                    : x;
  Value low = move(arith::TruncIOp::create(b, loc, word, bits));
  Value high =
      move(arith::TruncIOp::create(b, loc, word, arith::ShRUIOp::create(b, loc, bits, i64(32))));
  bits = arith::OrIOp::create(
      b, loc, arith::ExtUIOp::create(b, loc, b.getI64Type(), low),
      arith::ShLIOp::create(b, loc, arith::ExtUIOp::create(b, loc, b.getI64Type(), high), i64(32)));
  return isa<FloatType>(type) ? Value(arith::BitcastOp::create(b, loc, type, bits)) : bits;
}

Value CudaKernelBuilder::combineWarp(ReduceKind kind, Value x) {
  for (int mask = 16; mask > 0; mask /= 2)
    x = combine(kind, x, exchange(x, mask));
  return x;
}

Value CudaKernelBuilder::shared(Type type, int64_t count) {
  return declare("shared", LLVM::LLVMArrayType::get(memoryType(type), count), {},
                 /*isConstant=*/false, /*alignment=*/16, kSharedMemory);
}

Value CudaKernelBuilder::launchShared(int64_t bytes) {
  kernel.launch.set_shared_bytes(uint32_t(bytes));
  return declare("launch_shared", LLVM::LLVMArrayType::get(b.getI8Type(), 0), {},
                 /*isConstant=*/false, /*alignment=*/128, kSharedMemory, LLVM::Linkage::External);
}

Value CudaKernelBuilder::common(Type type, int64_t count) {
  Type element = memoryType(type);
  auto zeros =
      DenseElementsAttr::get(RankedTensorType::get({count}, element), b.getZeroAttr(element));
  return declare("common", LLVM::LLVMArrayType::get(element, count), zeros, /*isConstant=*/false,
                 /*alignment=*/16, kGlobalMemory);
}

Value CudaKernelBuilder::loadCommon(Value base, Value offset, Type element) {
  // Volatile: neither registers nor the L1 cache see stores of other multiprocessors.
  Value address = elementPointer(base, offset, element);
  return fromMemory(LLVM::LoadOp::create(b, loc, memoryType(element), address,
                                         elementBytes(element), /*isVolatile=*/true),
                    element);
}

Value CudaKernelBuilder::comesLast(Value counters, Value index, Value blocks) {
  Type word = b.getI32Type();
  Value answer = shared(word, 1),
        before = arith::TruncIOp::create(b, loc, word, sub(blocks, i64(1)));
  barrier(); // all threads of this block have stored
  ifTrue(arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, threadIndex(), i64(0)), [&] {
    LLVM::FenceOp::create(b, loc, LLVM::AtomicOrdering::acq_rel, "device");
    Value came = LLVM::AtomicRMWOp::create(b, loc, LLVM::AtomicBinOp::uinc_wrap,
                                           elementPointer(counters, index, word), before,
                                           LLVM::AtomicOrdering::monotonic, "device");
    LLVM::FenceOp::create(b, loc, LLVM::AtomicOrdering::acq_rel, "device");
    store(came, answer, i64(0), word);
  });
  barrier();
  return arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, load(answer, i64(0), word),
                               before);
}

void CudaKernelBuilder::barrier() { effect("llvm.nvvm.barrier.cta.sync.aligned.all", {i32(0)}); }

Value CudaKernelBuilder::ballot(Value condition) {
  return intrinsic("llvm.nvvm.vote.ballot.sync", b.getI32Type(), {i32(-1), condition});
}

Value CudaKernelBuilder::combineBlock(ReduceKind kind, Value x, int threads) {
  x = combineWarp(kind, x);
  if (threads <= 32)
    return x;
  const int warps = threads / 32;
  Value places = shared(x.getType(), warps), thread = threadIndex();
  Value lane = arith::AndIOp::create(b, loc, thread, i64(31)),
        warp = arith::ShRUIOp::create(b, loc, thread, i64(5));
  Value first = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, lane, i64(0));
  ifTrue(first, [&] { store(x, places, warp, x.getType()); });
  barrier();
  // Every thread adds all of them in the same order.
  Value all = load(places, i64(0), x.getType());
  for (int w = 1; w < warps; ++w)
    all = combine(kind, all, load(places, i64(w), x.getType()));
  return all;
}

int64_t CudaKernelBuilder::alignment(unsigned operand) const {
  const bundle::Pointer &pointer = kernel.launch.operands(int(operand));
  int64_t all = 64;
  for (int64_t bytes : {pointer.fixed(), pointer.per_row()})
    while (bytes % all)
      all /= 2;
  return all;
}

Kernel CudaKernelBuilder::finish(StringRef hint, const Size &points, int threads, int perThread,
                                 bool takesRegisters, bool contract) {
  close(points, "alwaysinline", contract);
  MLIRContext *context = b.getContext();
  auto global = LLVM::LLVMPointerType::get(context, kGlobalMemory),
       generic = LLVM::LLVMPointerType::get(context);
  SmallVector<Type> types(abi::kCudaLeadingParameters, b.getI64Type());
  types.append(pointers.size(), global);
  auto outer = LLVM::LLVMFuncOp::create(
      b, loc, "kernel", LLVM::LLVMFunctionType::get(LLVM::LLVMVoidType::get(context), types));
  outer.setCConv(LLVM::CConv::PTX_Kernel);
  SmallVector<Attribute> limits = {b.getStrArrayAttr({"nvvm.reqntid", std::to_string(threads)})};
  if (takesRegisters)
    limits.push_back(b.getStrArrayAttr({"nvvm.minctasm", "1"}));
  outer.setPassthroughAttr(b.getArrayAttr(limits));
  for (auto [i, pointer] : llvm::enumerate(pointers)) {
    const unsigned argument = abi::kCudaLeadingParameters + unsigned(i);
    outer.setArgAttr(argument, LLVM::LLVMDialect::getNoAliasAttrName(), b.getUnitAttr());
    outer.setArgAttr(argument, LLVM::LLVMDialect::getAlignAttrName(),
                     b.getI64IntegerAttr(alignment(unsigned(i))));
    if (!written[i])
      outer.setArgAttr(argument, LLVM::LLVMDialect::getReadonlyAttrName(), b.getUnitAttr());
  }
  Block *block = outer.addEntryBlock(b);
  b.setInsertionPointToStart(block);
  Value thread = add(mul(blockIndex(), threads), threadIndex());
  SmallVector<Value> arguments = {
      block->getArgument(0), mul(thread, perThread), i64(0),
      block->getArgument(1), block->getArgument(2),  block->getArgument(3)};
  for (size_t i = 0; i < pointers.size(); ++i)
    arguments.push_back(LLVM::AddrSpaceCastOp::create(
        b, loc, generic, block->getArgument(abi::kCudaLeadingParameters + unsigned(i))));
  LLVM::CallOp::create(b, loc, inner, arguments);
  LLVM::ReturnOp::create(b, loc, ValueRange());
  kernel.launch.set_threads(uint32_t(threads));
  kernel.launch.set_per_thread(uint32_t(perThread));
  return take(hint, points);
}
