// Kernels as MLIR text → machine code: one object per distinct kernel, compiled in parallel, kept on disk, linked to one shared object.
#pragma once

#include "zorse/Codegen/CPU/Codegen.h"

#include "llvm/Support/Error.h"

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace zorse::codegen {

class KernelCache;

/// The set of distinct kernels of one compilation. A kernel is one module as text that defines `llvm.func @kernel` with the signature of
/// runtime/abi/KernelAbi.h, and what it touches as the global @needs, in the dialects arith, math, scf and llvm.
class KernelSet {
public:
  explicit KernelSet(const CodegenOptions &options);
  ~KernelSet();

  /// The symbol of a kernel: `<hint>_<hash of text, target and compiler version>`. Equal texts give equal symbols.
  std::string add(llvm::StringRef hint, std::string text);

  size_t size() const { return sources.size(); }
  const std::string &dumpDir() const { return options.dumpDir; }
  const std::map<std::string, std::string> &texts() const { return sources; }

  /// Forgets all others.
  void retain(const std::set<std::string> &symbols);

  /// Compiles what the cache does not hold and links everything, in the order of symbols.
  llvm::Expected<std::string> link(unsigned &compiled);

private:
  struct Target {
    std::string triple, cpu, features;
  };
  CodegenOptions options;
  Target target;
  std::unique_ptr<KernelCache> cache;         ///< null: none.
  std::map<std::string, std::string> sources; ///< symbol → text.

  llvm::Expected<std::string> compile(const std::string &symbol, const std::string &text) const;
};

} // namespace zorse::codegen
