// Compiles the bitcode behind the PTX for the host. NVPTX intrinsics become calls of the emulator,
// which also checks every access.
#pragma once

#include "Grid.h"

#include <map>
#include <memory>
#include <string>

namespace zorse::emulator {

/// A planted bug, for tests of the emulator, in the operation of its kind with this number, counted
/// over all modules.
struct PlantedBug {
  enum Kind {
    None,
    NoCollective, ///< an exchange returns the thread's own value, a ballot returns nothing, a
                  ///< barrier does not wait
    MovedAccess,  ///< a load or store accesses the bytes after its own
    OpenGuard     ///< an integer comparison that ends no loop is always true
  } kind = None;
  int number = 0;
};

class HostCode {
public:
  /// \param bitcode  modules, each preceded by its length (8 bytes): the output of code generation
  /// for the architecture "emu"
  /// \returns null, and sets `error`, if compilation fails or an intrinsic is unknown
  /// \param check  accesses are checked
  /// \param contracts  contract products and sums to fma exactly as LLVM's NVPTX backend does, so
  /// that results have the bits of the PTX. Otherwise the host's backend decides, which does not
  /// contract products with several uses.
  static std::unique_ptr<HostCode> compile(const std::string &bitcode, std::string &error,
                                           bool check = true, PlantedBug bug = {},
                                           bool contracts = false);
  /// Number of places where a kind of bug can be planted.
  int places(PlantedBug::Kind kind) const;
  ~HostCode();

  const HostKernel *find(const std::string &symbol) const;
  /// A constant of a module, by name; empty: none.
  Range table(const std::string &name) const;

private:
  HostCode();
  struct Implementation;
  std::unique_ptr<Implementation> impl;
};

} // namespace zorse::emulator
