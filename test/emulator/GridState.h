// What the emulator knows of the grid that runs: its threads, what they have touched, and how what they did is ordered.
#pragma once

#include "Grid.h"
#include "SharedBanks.h"
#include "WarpOperations.h"

#include <csetjmp>
#include <map>
#include <memory>
#include <set>
#include <tuple>
#include <vector>

namespace zorse::emulator {

/// A thread with more findings is lost.
inline constexpr int kMostFindings = 10000;

/// What a function must leave as it found it, on a stack of its own; ucontext asks the kernel at every switch.
struct Context {
  void *stack = nullptr;
};

enum class State : uint8_t { Ready, Warp, Barrier, Done };

struct Thread {
  Context context;
  std::unique_ptr<char[]> stack;
  State state = State::Done;
  uint32_t site = 0;
  // Of a warp operation: kind ('x' exchange, 'b' ballot, 's' barrier, 'm' and 'h' products of bf16 and f16, 'l' and 't' ldmatrix, as rows lie and
  // transposed), operands, result.
  char kind = 0;
  uint32_t value = 0, argument = 0, result = 0;
  MultiplyOperands factors = {};
  FourRegisters four = {};
  uintptr_t row = 0;

  /// cp.async: `size` bytes of `bytes` are copied, the others are 0.
  struct Copy {
    uintptr_t to, from;
    uint32_t bytes, size, group;
  };
  std::vector<Copy> copies; ///< under way
  uint32_t group = 0;       ///< commits so far
};

/// Who touched a few bytes last.
struct Touched {
  uint32_t writer = 0, writerEpoch = 0, reader = 0, readerEpoch = 0; ///< thread of the grid + 1; 0: nobody
  uint32_t writerTurn = 0, readerTurn = 0;                           ///< barriers that their warps had passed
  bool severalReaders = false;                                       ///< of the reader's warp, since its last barrier
  bool severalWarps = false;                                         ///< read it, since the block's last barrier
  bool isPending = false;                                            ///< a copy is on its way there
};

/// When a thread stood at a counter or a fence.
struct Moment {
  uint32_t thread = 0, epoch = 0; ///< thread of the grid + 1; 0: never
};

struct Grid {
  const HostKernel *kernel = nullptr;
  const GridLaunch *launch = nullptr;
  uint32_t block = 0, thread = 0; ///< that run now
  uint32_t epoch = 0;             ///< barriers passed in this block
  std::vector<Thread> threads;
  Context scheduler;
  struct alignas(128) Line {
    char bytes[128];
  };
  std::vector<Line> shared;
  std::vector<Touched> touchedShared;   ///< by byte of shared memory
  std::map<uintptr_t, Touched> touched; ///< of other memory, by address
  std::vector<uint32_t> turns;          ///< by warp of this block: barriers of the warp that it has passed
  // Of common memory: a block that has counted itself has given what it stored before; one that came later has it behind its fence.
  std::map<uintptr_t, std::map<uint32_t, Moment>> given; ///< by counter and block
  std::map<uint32_t, uint32_t> fences;                   ///< of this block: by thread, the epoch of its last fence
  uintptr_t counter = 0;                                 ///< at which this block has counted itself
  Moment counted, taken;                                 ///< of this block
  std::vector<std::string> findings;
  std::map<std::string, int> counts;
  int found = 0;
  std::jmp_buf plain; ///< where a thread that is no fiber began

  /// A thread with so many findings is in a loop that has lost its end. It is left where it is, and so is its grid.
  bool isLost() const { return found > kMostFindings; }
  void leave();

  // Of the block that runs: accesses by warp, site and how often the thread has been there.
  Traffic *traffic = nullptr;
  std::map<std::tuple<uint32_t, uint32_t, uint32_t>, std::vector<std::pair<uintptr_t, uint32_t>>> together;
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> visits; ///< by thread and site
  std::set<uintptr_t> read, written;                        ///< sectors
  std::map<std::tuple<uint32_t, uint32_t, uint32_t>, std::vector<SharedAccess>> togetherShared;

  void note(uintptr_t address, uint32_t bytes, bool writes, uint32_t site);
  void noteShared(uintptr_t address, uint32_t bytes, uint32_t site);
  void countBlock();
  void find(const std::string &kind, uint32_t site, const std::string &what);

  uintptr_t sharedBegin() const { return reinterpret_cast<uintptr_t>(shared.data()); }
  uint64_t sharedBytes() const { return kernel->sharedBytes + launch->sharedBytes; }
  bool inShared(uintptr_t address) const { return address >= sharedBegin() && address < sharedBegin() + shared.size() * sizeof(Line); }

  /// Whether the access may happen.
  bool access(uintptr_t address, uint32_t bytes, uint32_t alignment, bool writes, uint32_t site);

  static bool isOfWarp(uint32_t other, uint32_t me) { return (other - 1) / 32 == (me - 1) / 32; }
  Touched &touchedAt(uintptr_t address, bool isShared) { return isShared ? touchedShared[address - sharedBegin()] : touched[address]; }

  // ---- Copies that a thread does not wait for.

  void beginCopy(uintptr_t to, uintptr_t from, uint32_t bytes, uint32_t size, uint32_t site);

  /// What the thread committed before its last `groups` commits lands.
  void waitForCopies(uint32_t groups);

  /// Whether what a thread of another block did in common memory lies before what thread `me` does now.
  bool isGiven(uint32_t other, uint32_t otherBlock, uint32_t otherEpoch, uint32_t me);
  void fence();
  void count(uintptr_t address, uint32_t site);

  alignas(64) char elsewhere[64]; ///< where accesses go that may not happen

  void wait(State state, uint32_t site);

  /// All of a warp's threads are at one operation: they exchange.
  void warpOperation(uint32_t first);
  static void multiply(Thread *warp);
  void loadMatrices(uint32_t first);
  static void exchange(Thread *warp);
  void runBlock();
};

} // namespace zorse::emulator
