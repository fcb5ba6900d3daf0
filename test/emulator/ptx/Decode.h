// Decodes PTX kernels into executable instructions. Names become indices of registers, addresses
// and statements.
#pragma once

#include "Memory.h"
#include "PtxText.h"
#include "Scalars.h"

#include <vector>

namespace zorse::emulator::ptx {

enum class Kind : uint8_t {
  Scalar,
  Pack,   ///< registers into a wider one
  Unpack, ///< a register into narrower ones
  Special,
  LoadParameter,
  Load,
  Store,
  Branch,
  Return,
  BlockBarrier,
  WarpBarrier,
  Exchange, ///< shfl.sync.bfly
  Ballot,
  Multiply,     ///< mma.sync
  LoadMatrices, ///< ldmatrix
  Copy,         ///< cp.async
  Commit,
  Wait,
  Fence,
  Increment ///< atom.inc
};

enum class Special : uint8_t { Thread, Block, Threads, Blocks };
enum class Space : uint8_t { Global, Shared };

struct Source {
  int32_t index = -1; ///< index of a register; -1: a constant
  uint64_t value = 0;
};

struct Instruction {
  Kind kind = Kind::Scalar;
  const ScalarOperation *scalar = nullptr;
  int32_t guard = -1;
  bool isNegated = false;
  std::vector<int32_t> results; ///< registers; -1: the result is dropped
  std::vector<Source> sources;
  Source address; ///< base address in memory
  uint64_t offset = 0;
  Space space = Space::Global;
  AccessKind access = AccessKind::Load;
  uint8_t bits = 0;       ///< per element of memory or of a register vector
  bool isSigned = false;  ///< loads extend the sign
  uint64_t usedBytes = 0; ///< mask of the loaded bytes that are used, the others are undefined; 0:
                          ///< all
  bool isHalf = false, isTransposed = false;
  Special special = Special::Thread;
  uint32_t target = 0; ///< branch target
  uint32_t line = 0;
  std::string opcode, text;
  mutable uint64_t reached = 0; ///< number of times that a group of lanes has executed it
};

/// First address of shared memory, separate from global memory.
constexpr uint64_t kSharedBase = 0x1000000;

struct SharedVariable {
  std::string name;
  uint64_t begin = 0, end = 0; ///< addresses
};

struct Kernel {
  std::string name;
  uint32_t threads = 0; ///< per block; 0: any
  std::vector<uint8_t> widths;
  std::vector<Instruction> code;
  std::vector<uint32_t> parameterBytes;
  std::vector<SharedVariable> shared;
  uint64_t sharedEnd = kSharedBase;
  uint64_t launchShared = 0; ///< address of the shared memory that the launch requests; 0: none
  uint32_t granule = 8;      ///< size of the smallest memory access in bytes
};

/// \param symbols  addresses of the module's global variables
/// Throws Unreadable for an instruction, a modifier or an operand that is not known.
Kernel decode(const KernelText &text, const ModuleText &module,
              const std::map<std::string, uint64_t> &symbols);

} // namespace zorse::emulator::ptx
