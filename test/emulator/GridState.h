// The emulator's state of a running grid: its threads, their accesses, and the order of these
// accesses.
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

/// A thread with more findings is abandoned.
inline constexpr int kMaxFindings = 10000;

/// The registers that a function must preserve, stored on its stack. ucontext would call the kernel
/// at every switch.
struct Context {
  void *stack = nullptr;
};

enum class State : uint8_t { Ready, Warp, Barrier, Done };

struct Thread {
  Context context;
  std::unique_ptr<char[]> stack;
  State state = State::Done;
  uint32_t site = 0;
  // State of a warp operation: kind ('x' exchange, 'b' ballot, 's' barrier, 'm' and 'h' products of
  // bf16 and f16, 'l' and 't' ldmatrix without and with transposition), operands, result.
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
  std::vector<Copy> copies; ///< in progress
  uint32_t group = 0;       ///< commits so far
};

/// The last accesses to a few bytes.
struct Touched {
  uint32_t writer = 0, writerEpoch = 0, reader = 0,
           readerEpoch = 0;                ///< thread of the grid + 1; 0: none
  uint32_t writerTurn = 0, readerTurn = 0; ///< number of barriers that their warps had passed
  bool severalReaders = false;             ///< in the reader's warp, since its last barrier
  bool severalWarps = false;               ///< have read it since the block's last barrier
  bool isPending = false;                  ///< a copy to it is in progress
};

/// The time at which a thread reached a counter or a fence.
struct Moment {
  uint32_t thread = 0, epoch = 0; ///< thread of the grid + 1; 0: never
};

struct Grid {
  const HostKernel *kernel = nullptr;
  const GridLaunch *launch = nullptr;
  uint32_t block = 0, thread = 0; ///< the running block and thread
  uint32_t epoch = 0;             ///< number of barriers passed in this block
  std::vector<Thread> threads;
  Context scheduler;
  struct alignas(128) Line {
    char bytes[128];
  };
  std::vector<Line> shared;
  std::vector<Touched> touchedShared;   ///< by byte of shared memory
  std::map<uintptr_t, Touched> touched; ///< other memory, by address
  std::vector<uint32_t> turns; ///< by warp of this block: number of warp barriers that it has
                               ///< passed
  // Order in common memory: a block that has incremented a counter has released its earlier stores.
  // A later block acquires them with a fence.
  std::map<uintptr_t, std::map<uint32_t, Moment>> given; ///< by counter and block
  std::map<uint32_t, uint32_t> fences; ///< of this block: the epoch of the last fence, by thread
  uintptr_t counter = 0;               ///< the counter that this block has incremented
  Moment counted, taken;               ///< times of this block's increment and acquire
  std::vector<std::string> findings;
  std::map<std::string, int> counts;
  int found = 0;
  std::jmp_buf plain; ///< where a thread that is not a fiber began

  /// A thread with too many findings is in an endless loop. The thread and its grid are abandoned.
  bool isLost() const { return found > kMaxFindings; }
  void leave();

  // Of the running block: accesses by warp, site, and number of visits of the thread.
  Traffic *traffic = nullptr;
  std::map<std::tuple<uint32_t, uint32_t, uint32_t>, std::vector<std::pair<uintptr_t, uint32_t>>>
      together;
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> visits; ///< by thread and site
  std::set<uintptr_t> read, written;                        ///< sectors
  std::map<std::tuple<uint32_t, uint32_t, uint32_t>, std::vector<SharedAccess>> togetherShared;

  void note(uintptr_t address, uint32_t bytes, bool writes, uint32_t site);
  void noteShared(uintptr_t address, uint32_t bytes, uint32_t site);
  void countBlock();
  void find(const std::string &kind, uint32_t site, const std::string &what);

  uintptr_t sharedBegin() const { return reinterpret_cast<uintptr_t>(shared.data()); }
  uint64_t sharedBytes() const { return kernel->sharedBytes + launch->sharedBytes; }
  bool inShared(uintptr_t address) const {
    return address >= sharedBegin() && address < sharedBegin() + shared.size() * sizeof(Line);
  }

  /// Whether the access is allowed.
  bool access(uintptr_t address, uint32_t bytes, uint32_t alignment, bool writes, uint32_t site);

  static bool isOfWarp(uint32_t other, uint32_t me) { return (other - 1) / 32 == (me - 1) / 32; }
  Touched &touchedAt(uintptr_t address, bool isShared) {
    return isShared ? touchedShared[address - sharedBegin()] : touched[address];
  }

  // ---- Asynchronous copies.

  void beginCopy(uintptr_t to, uintptr_t from, uint32_t bytes, uint32_t size, uint32_t site);

  /// Completes the copies that the thread committed before its last `groups` commits.
  void waitForCopies(uint32_t groups);

  /// Whether the access of a thread in another block to common memory happens before the current
  /// access of thread `me`.
  bool isGiven(uint32_t other, uint32_t otherBlock, uint32_t otherEpoch, uint32_t me);
  void fence();
  void count(uintptr_t address, uint32_t site);

  alignas(64) char elsewhere[64]; ///< target of accesses that are not allowed

  void wait(State state, uint32_t site);

  /// Executes an operation that all threads of a warp have reached.
  void warpOperation(uint32_t first);
  static void multiply(Thread *warp);
  void loadMatrices(uint32_t first);
  static void exchange(Thread *warp);
  void runBlock();
};

} // namespace zorse::emulator
