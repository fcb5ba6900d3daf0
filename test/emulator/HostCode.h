// The bitcode that becomes PTX, compiled for the host: intrinsics of NVPTX become calls of the emulator, and every access tells it.
#pragma once

#include "Grid.h"

#include <map>
#include <memory>
#include <string>

namespace zorse::emulator {

class HostCode {
public:
  /// \param bitcode  modules, each behind its length (8 bytes): what code generation writes for the architecture "emu".
  /// \returns null, and `error`, for what cannot be compiled or has intrinsics that are not known.
  /// \param check  accesses are watched.
  static std::unique_ptr<HostCode> compile(const std::string &bitcode, std::string &error, bool check = true);
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
