// Compiles a case for the emulated GPU, runs it watched, and holds its results against the reference.
#pragma once

#include "Cases.h"

#include "bundle.pb.h"
#include "zorse/Codegen/Codegen.h"
#include "zorse/runtime/Device.h"

#include <memory>

namespace zorse::conformance {

struct Outcome {
  std::string problem; ///< a finding, a wrong number or a failure; empty: none
  double worst = 0;    ///< error in units of its band, the largest
  int kernels = 0;     ///< launches of kernels and products in the body
};

/// What runs bodies of the architecture "emu".
class Machine {
public:
  virtual ~Machine() = default;
  /// \returns what went wrong; empty: nothing
  virtual std::string load(const codegen::CompiledBodies &bodies) = 0;
  struct Call {
    int64_t rows, sampleBase;
    uint64_t instanceBase;
    std::vector<char *> slots; ///< one per slot of the body; on multiples of 64
    std::vector<uint8_t> overwrite;
  };
  virtual std::string run(int body, const Call &call) = 0;
};

/// Kernels on the emulator, every access watched; products by a processor's device, in the order of its own sums.
std::unique_ptr<Machine> makeEmulator();
/// The driver of real GPUs over the stand-ins for libcuda and cuBLASLt; null and `error` where they are not there.
std::unique_ptr<Machine> makeDriver(std::string &error);

/// Overwriting, and adding where results can be added to.
Outcome runCase(const Case &test, const std::string &type, Machine &machine, uint64_t seed);

} // namespace zorse::conformance
