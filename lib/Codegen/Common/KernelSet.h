// The distinct kernels of one compilation for one target: modules, compiled in parallel, remembered on disk, joined to one file.
#pragma once

#include "BodyLowering.h"

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

  /// The symbol of a kernel: `<hint>_<hash of text, target and compiler version>`. Equal texts give equal symbols.
  std::string add(llvm::StringRef hint, mlir::OwningOpRef<mlir::ModuleOp> kernel) final;
  /// A launch that does what a routine of the runtime does elsewhere (runtime/abi/Library.md); none where the device has the routine.
  /// \param slots  what the operands lie in, one each.
  virtual std::optional<Kernel> routine(mlir::MLIRContext *context, const bundle::Body &body, const bundle::LibraryCall &call) {
    return std::nullopt;
  }

  /// BodyLibrary.arch, and the name of the file in kernels/<arch>/ that `link` makes.
  virtual std::string arch() const = 0;
  virtual const char *object() const = 0;

  size_t size() const { return sources.size(); }
  const std::string &dumpDir() const { return options.dumpDir; }
  /// By symbol; in this set, or where `moveTo` has put them.
  const std::map<std::string, mlir::ModuleOp> &kernels() const { return sources; }
  /// A kernel without its name: what its symbol is a hash of.
  static std::string textOf(mlir::ModuleOp kernel);

  /// Hands the kernels over to a block, in the order of symbols.
  void moveTo(mlir::Block &block);
  /// Takes the kernels that a block has, which stay there.
  void refer(mlir::Block &block);

  /// Compiles what the cache does not hold and joins everything, in the order of symbols.
  llvm::Expected<std::string> link(unsigned &compiled);

protected:
  /// \param target  on which code depends besides its text; part of every symbol.
  KernelSet(const CodegenOptions &options, std::string target);

  using Objects = std::vector<std::pair<std::string, std::string>>; ///< symbol, bytes
  /// Called from several threads.
  virtual llvm::Expected<std::string> compile(const std::string &symbol, const std::string &text) const = 0;
  virtual llvm::Expected<std::string> join(const Objects &objects) const = 0;

  CodegenOptions options;
  /// Path prefix of a symbol's dumps; empty: none are wanted.
  std::string dumpOf(const std::string &symbol) const;

private:
  std::string target;
  std::unique_ptr<KernelCache> cache;            ///< null: none.
  std::map<std::string, mlir::ModuleOp> sources; ///< by symbol
  mlir::OwningOpRef<mlir::ModuleOp> nursery;     ///< of those that nobody has taken
};

/// For options.arch.
std::shared_ptr<KernelSet> makeKernels(const CodegenOptions &options);
std::shared_ptr<KernelSet> makeProcessorKernels(const CodegenOptions &options);
/// \pre isCudaArch(options.arch)
std::shared_ptr<KernelSet> makeCudaKernels(const CodegenOptions &options);

} // namespace zorse::codegen
