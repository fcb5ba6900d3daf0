// The bitcode that becomes PTX, compiled for the host: intrinsics of NVPTX become calls of the emulator, and every access tells it.
#pragma once

#include "Grid.h"

#include <map>
#include <memory>
#include <string>

namespace zorse::emulator {

/// A bug to be planted, for tests of the emulator: in the operation of its kind with this number, counted over all modules.
struct PlantedBug {
  enum Kind {
    None,
    NoCollective, ///< an exchange gives a thread its own number, a ballot nothing, a barrier does not wait
    MovedAccess,  ///< a load or store reaches for the bytes behind its own
    OpenGuard     ///< a comparison of integers that ends no loop is always true
  } kind = None;
  int number = 0;
};

class HostCode {
public:
  /// \param bitcode  modules, each behind its length (8 bytes): what code generation writes for the architecture "emu".
  /// \returns null, and `error`, for what cannot be compiled or has intrinsics that are not known.
  /// \param check  accesses are watched.
  /// \param contracts  products and sums become one fma wherever LLVM's NVPTX backend makes one of them, so that results have the bits of the PTX.
  /// Otherwise the host's backend decides, which leaves products apart that have several uses.
  static std::unique_ptr<HostCode> compile(const std::string &bitcode, std::string &error, bool check = true, PlantedBug bug = {},
                                           bool contracts = false);
  /// How many places a kind of bug can be planted in.
  int places(PlantedBug::Kind kind) const;
  ~HostCode();

  const HostKernel *find(const std::string &symbol) const;
  /// A constant of a module, by name; empty: there is none.
  Range table(const std::string &name) const;

private:
  HostCode();
  struct Implementation;
  std::unique_ptr<Implementation> impl;
};

} // namespace zorse::emulator
