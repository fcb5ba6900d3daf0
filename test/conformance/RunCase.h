// Compiles a case for the emulated GPU or a real one, runs it, and compares its results with the
// reference.
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
  std::string problem; ///< a finding, a wrong number or a failure; empty if there is none
  double worst = 0;    ///< largest error, in units of its band
  int kernels = 0;     ///< number of kernel and matmul launches in the function
};

/// Runs compiled functions.
class Machine {
public:
  explicit Machine(std::string arch) : arch(std::move(arch)) {}
  virtual ~Machine() = default;
  const std::string arch; ///< architecture that functions are compiled for
  /// \returns an error; empty on success
  virtual std::string load(const codegen::CompiledFunctions &compiled) = 0;
  /// Another machine that receives the same functions before this one, compiled for its own
  /// architecture; null if there is none.
  virtual Machine *companion() { return nullptr; }
  struct Call {
    int64_t rows, sampleBase;
    uint64_t rngIdBase;
    std::vector<char *> arguments; ///< one per argument of the function, aligned to 64 bytes
    std::vector<uint8_t> overwrite;
  };
  virtual std::string run(int function, const Call &call) = 0;

  // For a machine that records cases (Recorder.h): a case begins; expected results are passed after
  // run() and results are not compared.
  virtual void begin(const std::string &name) {}
  virtual bool records() const { return false; }
  virtual bool needsResults() const { return true; } ///< also arguments
  virtual void expect(ExpectedResult result) {}
};

/// Makes a machine that runs kernels on the emulator, which checks every access. A CPU device
/// computes matmuls, with its own order of sums.
/// \param arch  "emu", or "emu:sm_90" for the bitcode from which PTX for sm_90 is made
std::unique_ptr<Machine> makeEmulator(const std::string &arch = "emu");

/// Makes a machine that uses the GPU driver. For "emu", it uses the fakes of libcuda and cuBLASLt,
/// else this machine's first GPU. Returns null and sets `error` if libraries are missing.
std::unique_ptr<Machine> makeDriver(const std::string &arch, std::string &error);

/// Compiles for the machine and for machine.companion(), and loads the results.
/// \param problem  receives the error
std::optional<codegen::CompiledFunctions> compileAndLoad(
    Machine &machine, std::string &problem,
    const std::function<std::optional<codegen::CompiledFunctions>(const std::string &arch)>
        &compile);

/// Compiles a case for the machine's architecture and runs it twice. The first run overwrites
/// results; the second adds to them if the function can add.
Outcome runCase(const Case &test, const std::string &type, Machine &machine, uint64_t seed);

} // namespace zorse::conformance
