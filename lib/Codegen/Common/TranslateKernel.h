// Lowers a kernel to LLVM IR, for every target.
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

/// Translates a kernel to LLVM IR and renames it from `kernel` to `symbol`. Transcendental
/// functions in f32 become polynomials.
/// \param dump     path prefix for the .mlir file; empty: no file.
/// \param prepare  changes the module before it is lowered; null: no change.
llvm::Expected<std::unique_ptr<llvm::Module>>
translateKernel(llvm::LLVMContext &context, const std::string &symbol, const std::string &text,
                const std::string &dump, llvm::function_ref<void(mlir::ModuleOp)> prepare = {});

/// Runs LLVM's optimization pipeline.
/// \param level   0 to 3
/// \param extend  adds passes of the target; null: none
void optimize(llvm::Module &module, llvm::TargetMachine &machine, unsigned level,
              llvm::function_ref<void(llvm::PassBuilder &)> extend = {});

llvm::Error emitFile(llvm::Module &module, llvm::TargetMachine &machine, llvm::CodeGenFileType type,
                     llvm::raw_pwrite_stream &out);

/// Writes a dump file. Ignores errors.
void writeDump(const std::string &path, llvm::function_ref<void(llvm::raw_ostream &)> write);

} // namespace zorse::codegen
