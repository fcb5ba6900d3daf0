// The distinct kernels of one compilation for one target. They are compiled in parallel, cached on
// disk and joined to one file.
#pragma once

#include "FunctionLowering.h"

#include "zorse/Codegen/Codegen.h"

#include "llvm/Support/Error.h"

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace zorse::codegen {

class KernelCache;

/// A kernel is one module in the dialects arith, math, scf and llvm.
class KernelSet : public Emitter {
public:
  ~KernelSet() override;

  /// Returns the symbol of a kernel: `<hint>_<hash of text, target and compiler version>`. Equal
  /// texts give equal symbols.
  std::string add(llvm::StringRef hint, mlir::OwningOpRef<mlir::ModuleOp> kernel) final;
  /// Returns a kernel that replaces a routine of the runtime (runtime/abi/Library.md); none if the
  /// device has the routine.
  /// \param slots  the arguments of the operands, one each.
  virtual std::optional<Kernel> routine(mlir::MLIRContext *context,
                                        const bundle::CompiledFunction &compiled,
                                        const bundle::LibraryCall &call) {
    return std::nullopt;
  }

  /// FunctionLibrary.arch, and the name of the file in kernels/<arch>/ that `link` creates.
  virtual std::string arch() const = 0;
  virtual const char *object() const = 0;

  size_t size() const { return sources.size(); }
  const std::string &dumpDir() const { return options.dumpDir; }
  /// Kernels by symbol, in this set or in the block to which `moveTo` moved them.
  const std::map<std::string, mlir::ModuleOp> &kernels() const { return sources; }
  /// Returns the text of a kernel without its name. The symbol is a hash of this text.
  static std::string textOf(mlir::ModuleOp kernel);

  /// Moves the kernels to a block, sorted by symbol.
  void moveTo(mlir::Block &block);
  /// Adds the kernels of a block to this set without moving them.
  void refer(mlir::Block &block);

  /// Compiles the kernels that the cache does not contain and joins all of them, sorted by symbol.
  llvm::Expected<std::string> link(unsigned &compiled);

protected:
  /// \param target  everything except the text on which the code depends; part of every symbol.
  KernelSet(const CodegenOptions &options, std::string target);

  using Objects = std::vector<std::pair<std::string, std::string>>; ///< symbol, bytes
  /// Called from several threads.
  virtual llvm::Expected<std::string> compile(const std::string &symbol,
                                              const std::string &text) const = 0;
  virtual llvm::Expected<std::string> join(const Objects &objects) const = 0;

  CodegenOptions options;
  /// Path prefix of a symbol's dumps; empty if no dumps are requested.
  std::string dumpOf(const std::string &symbol) const;

private:
  std::string target;
  std::unique_ptr<KernelCache> cache;            ///< null if there is no cache.
  std::map<std::string, mlir::ModuleOp> sources; ///< by symbol
  mlir::OwningOpRef<mlir::ModuleOp> nursery; ///< owns the kernels that were not moved to a block
};

/// Creates the kernel set for options.arch.
std::shared_ptr<KernelSet> makeKernels(const CodegenOptions &options);
std::shared_ptr<KernelSet> makeCpuKernels(const CodegenOptions &options);
/// \pre isCudaArch(options.arch)
std::shared_ptr<KernelSet> makeCudaKernels(const CodegenOptions &options);

} // namespace zorse::codegen
