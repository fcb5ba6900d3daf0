// The verifier. It reads the serialized programs of all devices and refuses programs that could
// compute anything else than one device would.
#pragma once

#include "zorse/Verify/PlanView.h"

#include <cstdint>
#include <string>
#include <vector>

namespace zorse::bundle {
class ModelSummary;
class FunctionLibrary;
class Program;
} // namespace zorse::bundle

namespace zorse::verify {

/// Kinds of mistakes. docs/internals/verifier.md describes each, and test/unit/verify tests each.
enum class Code : uint8_t {
  Malformed,   ///< an index, size or number of a message is impossible
  Plan,        ///< the plan does not tile the rectangle, or owners do not tile the state
  Unsupported, ///< a task that this version does not support
  Unmatched, ///< a half of a transfer or a member of a collective is missing, or there are too many
  Mismatched, ///< the halves disagree about bytes, value, members, extents, order or phase
  Order,      ///< ids of instructions do not ascend, or a wait does not name an earlier instruction
  Race,       ///< conflicting accesses are not ordered by the device's own queues and waits
  Alias,      ///< two arguments of one call overlap and one is written
  Bounds,     ///< a region exceeds its arena
  Reach,     ///< a transfer uses memory that transports cannot access, or is direct between devices
             ///< that do not exchange directly
  Launch,    ///< devices launch their direct transfers in incompatible orders
  Limit,     ///< arenas exceed the device's memory
  Residence, ///< state is kept in another memory than the plan specifies
  Alignment, ///< an argument does not start on a multiple of 64 bytes
  Size,      ///< a region has another size than its value
  Task,      ///< a cell's F or B is missing, duplicated or on another device
  Call,      ///< wrong unit, rows, sample base, RNG id base, function or argument
  Declared,  ///< an argument declares another value than plan and summary imply
  Undefined, ///< bytes are read that were never written
  Stale,     ///< the right value of another step or version is read
  WrongValue,    ///< another value is read
  Contributions, ///< an accumulator misses a contribution or contains one twice
  Update,        ///< an element of state is not updated exactly once
  Loss,          ///< the loss sums miss rows or contain them twice
  Norm,          ///< the gradient norm misses elements or contains them twice
  Report,        ///< a result of the step is not copied to a host
};

const char *name(Code code);

struct Finding {
  Code code;
  int32_t device = -1;      ///< index in the plan's devices; -1: not about a single device
  int64_t instruction = -1; ///< Instruction.id; -1: not about a single instruction
  std::string message;      ///< human-readable; names tasks and devices
};

struct VerifyOptions {
  unsigned threads = 1;
  unsigned findingsPerDevice = 8; ///< the replay of a device stops after this number of findings
  /// By device: its transports can access only host memory (DeviceKind::stages), so transfers and
  /// collectives must use host memory. Empty: no device.
  std::vector<bool> hostStaged = {};
  /// By device: devices with the same number exchange directly between their memories. -1, and
  /// devices that are not listed: no direct exchange.
  std::vector<int32_t> d2dGroups = {};
};

/// Checks the programs of one step, which may run any number of times, in training and evaluation:
/// matching, order, races, memory and values (docs/internals/verifier.md).
///
/// The values of compute, reductions and updates are derived from the summary and the plan alone.
/// Transfers, gathers and loads declare their values, which are compared at both ends; devices are
/// therefore replayed independently and in parallel. The time is linear in the number of bound
/// arguments and the intervals of their regions. The messages may contain any bytes: they lead to
/// findings, never to a crash.
///
/// \returns findings in the order of devices and instructions, independent of the number of
///   threads;
/// none iff the programs are correct
std::vector<Finding> verifyPrograms(const bundle::ModelSummary &summary,
                                    const bundle::FunctionLibrary &functions, const PlanView &plan,
                                    const std::vector<bundle::Program> &programs,
                                    const VerifyOptions &options = {});

/// The same for serialized programs. They are parsed one at a time, so that only one per thread is
/// in memory. Bytes that are not a program are a finding.
std::vector<Finding> verifySerialized(const bundle::ModelSummary &summary,
                                      const bundle::FunctionLibrary &functions,
                                      const PlanView &plan,
                                      const std::vector<std::string> &programs,
                                      const VerifyOptions &options = {});

/// One line per finding: "verify: a100:1: instruction 42: [wrong-value] ...".
std::string toString(const Finding &finding, const PlanView &plan);

} // namespace zorse::verify
