// The verifier: reads the serialised programs of all devices and refuses any that could compute something else than one device would.
#pragma once

#include "zorse/Verify/PlanView.h"

#include <cstdint>
#include <string>
#include <vector>

namespace zorse::bundle {
class ModelSummary;
class BodyLibrary;
class Program;
} // namespace zorse::bundle

namespace zorse::verify {

/// What is wrong, one code per kind of mistake; docs/verifier.md has a paragraph and test/unit/verify a test for each.
enum class Code : uint8_t {
  Malformed,     ///< an index, size or number of a message is impossible.
  Plan,          ///< the plan does not tile the rectangle, or owners do not tile the state.
  Unsupported,   ///< a task this version does not know.
  Unmatched,     ///< a half of a transfer or a member of a collective is missing, or there is one too many.
  Mismatched,    ///< the halves disagree about bytes, value, members, extents, order or phase.
  Order,         ///< entries do not ascend, or a wait names no earlier entry.
  Race,          ///< conflicting accesses are not ordered by the device's own queues and waits.
  Alias,         ///< two slots of one call overlap and one is written.
  Bounds,        ///< a region leaves its arena.
  Reach,         ///< a transfer works on memory that transports do not reach, or is direct between devices that do not exchange directly.
  Launch,        ///< devices launch what goes directly between them in orders that do not fit each other.
  Limit,         ///< arenas exceed the device's memory.
  Residence,     ///< state is kept in another memory than the plan says.
  Alignment,     ///< a slot does not start on a multiple of 64 bytes.
  Size,          ///< a region is not as long as its value.
  Task,          ///< a cell's F or B is missing, doubled or on another device.
  Call,          ///< wrong unit, rows, sample base, instance base, body or slot.
  Declared,      ///< a slot declares another value than plan and summary imply.
  Undefined,     ///< bytes are read that nothing has written.
  Stale,         ///< the right value of another step or version is read.
  WrongValue,    ///< another value is read.
  Contributions, ///< an accumulator misses a contribution or holds one twice.
  Update,        ///< an element of state is not updated exactly once.
  Loss,          ///< the loss sums miss rows or hold them twice.
  Norm,          ///< the gradient norm misses elements or holds them twice.
  Report,        ///< a result of the step reaches no host.
};

const char *name(Code code);

struct Finding {
  Code code;
  int32_t device = -1; ///< index in the plan's devices; -1: of no single device.
  int64_t entry = -1;  ///< Entry.id; -1: of no single entry.
  std::string message; ///< names tasks and devices: for people.
};

struct VerifyOptions {
  unsigned threads = 1;
  unsigned findingsPerDevice = 8; ///< a device's replay stops after as many.
  /// By device: transports reach its host's memory alone (DeviceKind::stages), so transfers and collectives must work there. Empty: none.
  std::vector<bool> staged = {};
  /// By device: devices of one number exchange from memory to memory; -1, and devices that are not listed: with nobody.
  std::vector<int32_t> direct = {};
};

/// Checks the programs of one step, run any number of times, in training and evaluation: matching, order, races, memory and values
/// (docs/verifier.md).
///
/// Values are derived from the summary and the plan alone for compute, reductions and updates; transfers, gathers and loads declare theirs
/// and are compared at both ends, so devices are replayed independently and in parallel. Time is linear in slots bound and the
/// intervals of their regions. Nothing in the messages is trusted: whatever their bytes, the result is findings, never a crash.
///
/// \returns no findings iff the programs are correct; in the order of devices and entries, the same for any number of threads.
std::vector<Finding> verifyPrograms(const bundle::ModelSummary &summary, const bundle::BodyLibrary &bodies, const PlanView &plan,
                                    const std::vector<bundle::Program> &programs, const VerifyOptions &options = {});

/// The same for serialised programs. They are read one by one, so that only one per thread is in memory. Bytes that are
/// no program are a finding.
std::vector<Finding> verifySerialized(const bundle::ModelSummary &summary, const bundle::BodyLibrary &bodies, const PlanView &plan,
                                      const std::vector<std::string> &programs, const VerifyOptions &options = {});

/// One line per finding: "verify: a100:1: entry 42: [wrong-value] ...".
std::string toString(const Finding &finding, const PlanView &plan);

} // namespace zorse::verify
