#include "CpuKernelBuilder.h"

#include "zorse/runtime/abi/KernelAbi.h"

#include <cstddef>

using namespace mlir;
using namespace zorse::codegen;

Value CpuKernelBuilder::scratch(Type type, int64_t count) {
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(entry);
  return LLVM::AllocaOp::create(b, loc, LLVM::LLVMPointerType::get(b.getContext()),
                                memoryType(type), i64(count), 64);
}

Kernel CpuKernelBuilder::finish(StringRef hint, const Size &points, bool contract) {
  close(points, "noinline", contract);
  // The exported function, a ZorseKernel. It unpacks operands and context.
  auto pointerType = LLVM::LLVMPointerType::get(b.getContext());
  Type word = b.getI64Type();
  auto outer = LLVM::LLVMFuncOp::create(
      b, loc, "kernel",
      LLVM::LLVMFunctionType::get(LLVM::LLVMVoidType::get(b.getContext()),
                                  {pointerType, pointerType, word, word, word}));
  Block *block = b.createBlock(&outer.getBody());
  Value operands = block->addArgument(pointerType, loc),
        call = block->addArgument(pointerType, loc);
  Value first = block->addArgument(word, loc), last = block->addArgument(word, loc),
        bits = block->addArgument(word, loc);
  b.setInsertionPointToStart(block);
  auto loadAt = [&](Value base, Type type, size_t index) -> Value {
    Value address = LLVM::GEPOp::create(b, loc, pointerType, type, base,
                                        LLVM::GEPArg(static_cast<int32_t>(index)));
    return LLVM::LoadOp::create(b, loc, type, address);
  };
  auto field = [&](size_t bytes) { return loadAt(call, word, bytes / sizeof(int64_t)); };
  SmallVector<Value> arguments = {field(offsetof(ZorseCallContext, rows)),
                                  first,
                                  last,
                                  bits,
                                  field(offsetof(ZorseCallContext, sampleBase)),
                                  field(offsetof(ZorseCallContext, rngIdBase))};
  for (size_t i = 0; i < pointers.size(); ++i)
    arguments.push_back(loadAt(operands, pointerType, i));
  LLVM::CallOp::create(b, loc, inner, arguments);
  LLVM::ReturnOp::create(b, loc, ValueRange());
  return take(hint, points);
}
