// Compiles a case for the emulated GPU or a real one, runs it, and compares its results with the reference.
#pragma once

#include "CaseFile.h"
#include "Cases.h"

#include "bundle.pb.h"
#include "zorse/Codegen/Codegen.h"
#include "zorse/runtime/Device.h"

#include <functional>
#include <memory>
#include <optional>

namespace zorse::conformance {

struct Outcome {
  std::string problem; ///< a finding, a wrong number or a failure; empty: none
  double worst = 0;    ///< error in units of its band, the largest
  int kernels = 0;     ///< launches of kernels and products in the body
};

/// Runs compiled bodies.
class Machine {
public:
  explicit Machine(std::string arch) : arch(std::move(arch)) {}
  virtual ~Machine() = default;
  const std::string arch; ///< what bodies are compiled for
  /// \returns what went wrong; empty: nothing
  virtual std::string load(const codegen::CompiledBodies &bodies) = 0;
  /// A machine that gets the same bodies, compiled for its own architecture, before this one; null: none.
  virtual Machine *beside() { return nullptr; }
  struct Call {
    int64_t rows, sampleBase;
    uint64_t instanceBase;
    std::vector<char *> slots; ///< one per slot of the body; on multiples of 64
    std::vector<uint8_t> overwrite;
  };
  virtual std::string run(int body, const Call &call) = 0;

  // Of one that writes cases down (Recorder.h): a case begins; whether results are to be told after run(), and none is compared.
  virtual void begin(const std::string &name) {}
  virtual bool records() const { return false; }
  virtual bool needsResults() const { return true; } ///< and arguments
  virtual void expect(ExpectedResult result) {}
};

/// Kernels on the emulator, every access watched; products by a processor's device, in the order of its own sums.
/// \param arch  "emu"; "emu:sm_90" for the bitcode that becomes PTX for sm_90
std::unique_ptr<Machine> makeEmulator(const std::string &arch = "emu");

/// The driver of GPUs. For "emu" it runs on the stand-ins for libcuda and cuBLASLt, for other architectures on this machine's first GPU. Null and
/// `error` where the libraries are missing.
std::unique_ptr<Machine> makeDriver(const std::string &arch, std::string &error);

/// Compiles for the machine and for the one beside it, and loads what comes out.
/// \param problem  says what went wrong
std::optional<codegen::CompiledBodies> compileAndLoad(Machine &machine, std::string &problem,
                                                      const std::function<std::optional<codegen::CompiledBodies>(const std::string &arch)> &compile);

/// Compiles a case for the machine's architecture and runs it twice: results are overwritten, then added to where the function can add.
Outcome runCase(const Case &test, const std::string &type, Machine &machine, uint64_t seed);

} // namespace zorse::conformance
