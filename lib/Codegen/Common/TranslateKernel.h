// A kernel's way through LLVM, for every target.
#pragma once

#include "mlir/IR/BuiltinOps.h"

#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Module.h"
#include "llvm/Support/CodeGen.h"
#include "llvm/Support/Error.h"

#include <memory>
#include <string>

namespace llvm {
class PassBuilder;
class TargetMachine;
class raw_pwrite_stream;
} // namespace llvm

namespace zorse::codegen {

/// LLVM IR of a kernel, which is renamed from `kernel` to `symbol`; transcendental functions in f32 are polynomials.
/// \param dump     not empty: path prefix for the .mlir file.
/// \param prepare  changes the module before it is lowered; null: nothing.
llvm::Expected<std::unique_ptr<llvm::Module>> translateKernel(llvm::LLVMContext &context, const std::string &symbol, const std::string &text,
                                                              const std::string &dump, llvm::function_ref<void(mlir::ModuleOp)> prepare = {});

/// \param level   0 to 3
/// \param extend  adds passes of the target; null: none
void optimize(llvm::Module &module, llvm::TargetMachine &machine, unsigned level, llvm::function_ref<void(llvm::PassBuilder &)> extend = {});

llvm::Error emitFile(llvm::Module &module, llvm::TargetMachine &machine, llvm::CodeGenFileType type, llvm::raw_pwrite_stream &out);

/// What cannot be written is left out.
void writeDump(const std::string &path, llvm::function_ref<void(llvm::raw_ostream &)> write);

} // namespace zorse::codegen
