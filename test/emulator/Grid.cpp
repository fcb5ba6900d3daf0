#include "Grid.h"

#include "SharedBanks.h"
#include "WarpOperations.h"

#include <algorithm>
#include <csetjmp>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <tuple>
#include <utility>

using namespace zorse::emulator;

namespace {

constexpr uint64_t kStack = 64 << 10;
constexpr int kMostFindings = 10000;

/// What a function must leave as it found it, on a stack of its own; ucontext asks the kernel at every switch.
struct Context {
  void *stack = nullptr;
};

#if defined(__x86_64__)
extern "C" void zorseEmulatorSwitch(void **from, void *to);
asm(R"(
.text
.type zorseEmulatorSwitch, @function
zorseEmulatorSwitch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  subq $8, %rsp
  stmxcsr (%rsp)
  fnstcw 4(%rsp)
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  ldmxcsr (%rsp)
  fldcw 4(%rsp)
  addq $8, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
)");
void switchTo(Context &from, Context &to) { zorseEmulatorSwitch(&from.stack, to.stack); }

/// `main` never returns.
void prepare(Context &context, char *stack, void (*main)()) {
  // 8 bytes off a multiple of 16 where `main` begins: so functions expect it.
  char *top = stack + kStack - reinterpret_cast<uintptr_t>(stack + kStack) % 16;
  auto *words = reinterpret_cast<uint64_t *>(top) - 11;
  std::memset(words, 0, 80);
  words[0] = uint64_t(0x37f) << 32 | 0x1f80; // control words as a program begins with
  words[7] = reinterpret_cast<uint64_t>(main);
  context.stack = words;
}
#else
#error "the emulator switches between threads on x86-64 only"
#endif

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
  void leave() {
    if (!kernel->collective)
      std::longjmp(plain, 1);
    switchTo(threads[thread].context, scheduler);
  }

  // Of the block that runs: accesses by warp, site and how often the thread has been there.
  Traffic *traffic = nullptr;
  std::map<std::tuple<uint32_t, uint32_t, uint32_t>, std::vector<std::pair<uintptr_t, uint32_t>>> together;
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> visits; ///< by thread and site
  std::set<uintptr_t> read, written;                        ///< sectors
  std::map<std::tuple<uint32_t, uint32_t, uint32_t>, std::vector<SharedAccess>> togetherShared;

  void note(uintptr_t address, uint32_t bytes, bool writes, uint32_t site) {
    together[{thread / 32, site, visits[{thread, site}]++}].push_back({address, bytes});
    for (uintptr_t sector = address / 32; sector <= (address + bytes - 1) / 32; ++sector)
      (writes ? written : read).insert(sector);
  }

  void noteShared(uintptr_t address, uint32_t bytes, uint32_t site) {
    togetherShared[{thread / 32, site, visits[{thread, site}]++}].push_back({thread % 32, uint32_t(address - sharedBegin()), bytes});
  }

  void countBlock() {
    for (const auto &[key, request] : togetherShared) {
      const Wavefronts wavefronts = wavefrontsOf(request);
      traffic->sharedWavefronts += wavefronts.taken;
      traffic->leastWavefronts += wavefronts.least;
    }
    togetherShared.clear();
    for (auto &[key, accesses] : together) {
      std::sort(accesses.begin(), accesses.end());
      uintptr_t end = 0, sectorsEnd = 0;
      for (auto [address, bytes] : accesses) {
        const uintptr_t last = address + bytes;
        if (last > end)
          traffic->usedBytes += last - std::max(end, address);
        end = std::max(end, last);
        const uintptr_t first = std::max(sectorsEnd, address / 32), beyond = (last + 31) / 32;
        if (beyond > first)
          traffic->sectors += beyond - first;
        sectorsEnd = std::max(sectorsEnd, beyond);
      }
      ++traffic->requests;
    }
    together.clear();
    visits.clear();
  }

  void find(const std::string &kind, uint32_t site, const std::string &what) {
    ++found;
    if (++counts[kind] > 3)
      return;
    findings.push_back(kind + ": " + what + ", block " + std::to_string(block) + ", thread " + std::to_string(thread) + ", at " +
                       (site < kernel->sites->size() ? (*kernel->sites)[site] : "?"));
  }

  uintptr_t sharedBegin() const { return reinterpret_cast<uintptr_t>(shared.data()); }
  uint64_t sharedBytes() const { return kernel->sharedBytes + launch->sharedBytes; }
  bool inShared(uintptr_t address) const { return address >= sharedBegin() && address < sharedBegin() + shared.size() * sizeof(Line); }

  /// Whether the access may happen.
  bool access(uintptr_t address, uint32_t bytes, uint32_t alignment, bool writes, uint32_t site) {
    const uintptr_t end = address + bytes;
    if (alignment && address % alignment)
      find("misaligned", site,
           std::to_string(bytes) + " bytes at an address that is " + std::to_string(address % alignment) + " off " + std::to_string(alignment));
    bool isShared = inShared(address), isCommon = false;
    if (isShared) {
      if (end > sharedBegin() + sharedBytes())
        return find("out of bounds", site, "shared memory"), false;
    } else {
      auto holds = [&](const Range &range) { return address >= range.begin && end <= range.end && (range.writable || !writes); };
      if (std::any_of(kernel->constants.begin(), kernel->constants.end(), holds))
        return true;
      isCommon = std::any_of(kernel->common.begin(), kernel->common.end(), holds);
      if (!isCommon && std::none_of(launch->operands.begin(), launch->operands.end(), holds)) {
        std::string nearest;
        for (size_t i = 0; i < launch->operands.size(); ++i)
          if (const Range &range = launch->operands[i]; address + 4096 > range.begin && address < range.end + 4096)
            nearest += ", operand " + std::to_string(i) + (range.writable ? "" : " (read only)") + " is [" +
                       std::to_string(int64_t(range.begin) - int64_t(address)) + ", " + std::to_string(int64_t(range.end) - int64_t(address)) +
                       ") from there";
        find("out of bounds", site, std::string(writes ? "writes " : "reads ") + std::to_string(bytes) + " bytes" + nearest);
        return false;
      }
    }
    if (traffic)
      isShared ? noteShared(address, bytes, site) : note(address, bytes, writes, site);
    // Two threads, one of which writes, that no barrier orders.
    const uint32_t me = block * launch->threads + thread + 1;
    const uint32_t turn = turns[thread / 32];
    auto unordered = [&](uint32_t other, uint32_t otherEpoch, uint32_t otherTurn) {
      if (!other || other == me)
        return false;
      const uint32_t otherBlock = (other - 1) / launch->threads;
      if (otherBlock == block)
        return otherEpoch == epoch && (!isOfWarp(other, me) || otherTurn == turn);
      return !isCommon || !isGiven(other, otherBlock, otherEpoch, me);
    };
    const uint32_t step = bytes >= 4 ? 4 : bytes;
    for (uintptr_t at = address; at < end; at += step) {
      Touched &t = touchedAt(at, isShared);
      if (t.isPending)
        find("race", site, "touches what a copy has not brought yet");
      if (isShared && !writes && !t.writer)
        find("not written", site, "reads shared memory that nothing has written");
      if (isCommon && !writes && !t.writer)
        find("not written", site, "reads common memory that nothing has written in this launch");
      if (unordered(t.writer, t.writerEpoch, t.writerTurn))
        find("race", site, writes ? "writes what another thread writes" : "reads what another thread writes");
      const bool isRead = t.reader && t.readerEpoch == epoch, ofWarp = isRead && isOfWarp(t.reader, me);
      if (writes && (unordered(t.reader, t.readerEpoch, t.readerTurn) || (isRead && t.severalWarps) ||
                     (ofWarp && t.severalReaders && t.readerTurn == turn)))
        find("race", site, "writes what another thread reads");
      if (writes) {
        t.writer = me, t.writerEpoch = epoch, t.writerTurn = turn;
      } else {
        t.severalWarps = isRead && (t.severalWarps || !ofWarp);
        t.severalReaders = ofWarp && t.readerTurn == turn && (t.severalReaders || t.reader != me);
        t.reader = me, t.readerEpoch = epoch, t.readerTurn = turn;
      }
    }
    return true;
  }

  static bool isOfWarp(uint32_t other, uint32_t me) { return (other - 1) / 32 == (me - 1) / 32; }
  Touched &touchedAt(uintptr_t address, bool isShared) { return isShared ? touchedShared[address - sharedBegin()] : touched[address]; }

  // ---- Copies that a thread does not wait for.

  void beginCopy(uintptr_t to, uintptr_t from, uint32_t bytes, uint32_t size, uint32_t site) {
    Thread &self = threads[thread];
    if (kernel->checked) {
      if (!inShared(to))
        return find("out of bounds", site, "copies to what is not shared memory");
      if (!access(to, bytes, bytes, true, site) || (size > 0 && !access(from, size, bytes, false, site)))
        return;
      for (uint32_t i = 0; i < bytes; i += 4)
        touchedAt(to + i, true).isPending = true;
    }
    std::memset(reinterpret_cast<void *>(to), 0xff, bytes);
    self.copies.push_back({to, from, bytes, size, self.group});
  }

  /// What the thread committed before its last `groups` commits lands.
  void waitForCopies(uint32_t groups) {
    Thread &self = threads[thread];
    const uint32_t me = block * launch->threads + thread + 1;
    auto lands = [&](const Thread::Copy &copy) { return copy.group + groups < self.group; };
    for (const Thread::Copy &copy : self.copies) {
      if (!lands(copy))
        continue;
      std::memset(reinterpret_cast<void *>(copy.to), 0, copy.bytes);
      std::memcpy(reinterpret_cast<void *>(copy.to), reinterpret_cast<const void *>(copy.from), copy.size);
      for (uint32_t i = 0; kernel->checked && i < copy.bytes; i += 4) {
        Touched &t = touchedAt(copy.to + i, true);
        t = Touched();
        t.writer = me, t.writerEpoch = epoch, t.writerTurn = turns[thread / 32];
      }
    }
    self.copies.erase(std::remove_if(self.copies.begin(), self.copies.end(), lands), self.copies.end());
  }

  /// Whether what a thread of another block did in common memory lies before what thread `me` does now.
  bool isGiven(uint32_t other, uint32_t otherBlock, uint32_t otherEpoch, uint32_t me) {
    if (!taken.thread || (taken.thread != me && taken.epoch == epoch))
      return false;
    const Moment &moment = given[counter][otherBlock];
    return moment.thread && (moment.thread == other || otherEpoch < moment.epoch);
  }

  void fence() {
    const uint32_t me = block * launch->threads + thread + 1;
    fences[me] = epoch;
    if (counted.thread == me)
      taken = {me, epoch};
  }

  void count(uintptr_t address, uint32_t site) {
    const uint32_t me = block * launch->threads + thread + 1;
    auto fenced = fences.find(me);
    if (fenced == fences.end() || fenced->second != epoch)
      find("race", site, "counts its block without a fence before");
    const bool isCommon = std::any_of(kernel->common.begin(), kernel->common.end(),
                                      [&](const Range &range) { return address >= range.begin && address + 4 <= range.end; });
    if (!isCommon)
      find("out of bounds", site, "counts outside of common memory");
    counter = address;
    counted = given[address][block] = {me, epoch};
  }

  alignas(64) char elsewhere[64]; ///< where accesses go that may not happen

  void wait(State state, uint32_t site) {
    Thread &self = threads[thread];
    self.state = state;
    self.site = site;
    switchTo(self.context, scheduler);
  }

  /// All of a warp's threads are at one operation: they exchange.
  void warpOperation(uint32_t first) {
    Thread *warp = &threads[first];
    switch (warp[0].kind) {
    case 's':
      ++turns[first / 32];
      break;
    case 'm':
    case 'h':
      multiply(warp);
      break;
    case 'l':
    case 't':
      loadMatrices(first);
      break;
    default:
      exchange(warp);
    }
    for (uint32_t lane = 0; lane < 32; ++lane)
      warp[lane].state = State::Ready;
  }

  static void multiply(Thread *warp) {
    std::array<MultiplyOperands, 32> operands;
    std::array<FourRegisters, 32> results;
    for (size_t lane = 0; lane < 32; ++lane)
      operands[lane] = warp[lane].factors;
    multiplyMatrices(operands, warp[0].kind == 'h', results);
    for (size_t lane = 0; lane < 32; ++lane)
      warp[lane].four = results[lane];
  }

  void loadMatrices(uint32_t first) {
    std::array<std::array<uint16_t, 8>, 32> rows = {};
    std::array<FourRegisters, 32> results;
    for (uint32_t lane = 0; lane < 32; ++lane) {
      const Thread &from = threads[first + lane];
      thread = first + lane;
      if (!kernel->checked || (inShared(from.row) && access(from.row, 16, 16, false, from.site)))
        std::memcpy(rows[lane].data(), reinterpret_cast<const void *>(from.row), 16);
      else if (!inShared(from.row))
        find("out of bounds", from.site, "loads a matrix from what is not shared memory");
    }
    distributeMatrices(rows, threads[first].kind == 't', results);
    for (uint32_t lane = 0; lane < 32; ++lane)
      threads[first + lane].four = results[lane];
  }

  static void exchange(Thread *warp) {
    uint32_t bits = 0;
    for (uint32_t lane = 0; lane < 32; ++lane)
      bits |= (warp[lane].value != 0 ? 1u : 0u) << lane;
    for (uint32_t lane = 0; lane < 32; ++lane)
      warp[lane].result = warp[lane].kind == 'b' ? bits : warp[lane ^ warp[lane].argument].value;
  }

  void runBlock();
};

thread_local Grid *grid = nullptr;

void threadMain() {
  Grid &g = *grid;
  g.kernel->call(g.launch->parameters.data());
  g.threads[g.thread].state = State::Done;
  switchTo(g.threads[g.thread].context, g.scheduler);
}

void Grid::runBlock() {
  epoch = 0;
  fences.clear();
  counted = taken = {};
  touchedShared.assign(kernel->checked ? shared.size() * sizeof(Line) : 0, Touched()); // shared memory is the block's own
  std::memset(static_cast<void *>(shared.data()), 0xff, shared.size() * sizeof(Line));
  turns.assign(launch->threads / 32, 0);
  if (!kernel->collective) {
    if (setjmp(plain) == 0)
      for (thread = 0; thread < launch->threads; ++thread)
        kernel->call(launch->parameters.data());
    return;
  }
  for (thread = 0; thread < launch->threads; ++thread) {
    Thread &t = threads[thread];
    if (!t.stack)
      t.stack.reset(new char[kStack]);
    prepare(t.context, t.stack.get(), threadMain);
    t.state = State::Ready;
    t.copies.clear();
    t.group = 0;
  }
  const auto last = threads.begin() + launch->threads;
  for (;;) {
    bool ran = false;
    for (thread = 0; thread < launch->threads; ++thread)
      if (threads[thread].state == State::Ready) {
        switchTo(scheduler, threads[thread].context);
        if (isLost())
          return;
        ran = true;
      }
    bool moved = ran;
    for (uint32_t first = 0; first < launch->threads; first += 32) {
      Thread *warp = &threads[first];
      const auto atOne = [&](const Thread &t) { return t.state == State::Warp && t.site == warp[0].site; };
      if (std::all_of(warp, warp + 32, atOne)) {
        warpOperation(first);
        moved = true;
      } else if (std::any_of(warp, warp + 32, [](const Thread &t) { return t.state == State::Warp; }) &&
                 std::none_of(warp, warp + 32, [](const Thread &t) { return t.state == State::Ready; })) {
        thread = first;
        const Thread &waiting = *std::find_if(warp, warp + 32, [](const Thread &t) { return t.state == State::Warp; });
        find("divergent", waiting.site, "not all lanes of a warp reach an operation of the warp");
        return;
      }
    }
    if (std::all_of(threads.begin(), last, [](const Thread &t) { return t.state == State::Done; }))
      return;
    if (std::all_of(threads.begin(), last, [&](const Thread &t) { return t.state == State::Barrier && t.site == threads[0].site; })) {
      ++epoch;
      for (auto t = threads.begin(); t != last; ++t)
        t->state = State::Ready;
      moved = true;
    }
    if (!moved) {
      auto waiting = std::find_if(threads.begin(), last, [](const Thread &t) { return t.state == State::Barrier; });
      thread = uint32_t(waiting - threads.begin());
      find("divergent", waiting == last ? 0 : waiting->site, "not all threads of a block reach a barrier");
      return;
    }
  }
}

// ---- What kernels call.

uint32_t emuThread() { return grid->thread; }
uint32_t emuBlock() { return grid->block; }
void *emuShared(uint64_t offset) { return reinterpret_cast<char *>(grid->shared.data()) + offset; }
void emuBarrier(uint32_t site) { grid->wait(State::Barrier, site); }
uint32_t emuExchange(uint32_t value, uint32_t lanes, uint32_t site) {
  Thread &self = grid->threads[grid->thread];
  self.kind = 'x', self.value = value, self.argument = lanes;
  grid->wait(State::Warp, site);
  return grid->threads[grid->thread].result;
}
uint32_t emuBallot(uint32_t value, uint32_t site) {
  Thread &self = grid->threads[grid->thread];
  self.kind = 'b', self.value = value;
  grid->wait(State::Warp, site);
  return grid->threads[grid->thread].result;
}
void emuWarpBarrier(uint32_t site) {
  grid->threads[grid->thread].kind = 's';
  grid->wait(State::Warp, site);
}
void emuMultiply(const uint32_t *operands, uint32_t *result, uint32_t isHalf, uint32_t site) {
  Thread &self = grid->threads[grid->thread];
  self.kind = isHalf ? 'h' : 'm';
  std::memcpy(self.factors.data(), operands, sizeof self.factors);
  grid->wait(State::Warp, site);
  std::memcpy(result, grid->threads[grid->thread].four.data(), sizeof(FourRegisters));
}
void emuMatrices(void *row, uint32_t *result, uint32_t transposed, uint32_t site) {
  Thread &self = grid->threads[grid->thread];
  self.kind = transposed ? 't' : 'l';
  self.row = reinterpret_cast<uintptr_t>(row);
  grid->wait(State::Warp, site);
  std::memcpy(result, grid->threads[grid->thread].four.data(), sizeof(FourRegisters));
}
void emuCopy(void *to, void *from, uint32_t bytes, uint32_t size, uint32_t site) {
  grid->beginCopy(reinterpret_cast<uintptr_t>(to), reinterpret_cast<uintptr_t>(from), bytes, size, site);
}
void emuCommit() { ++grid->threads[grid->thread].group; }
void emuWait(uint32_t groups) { grid->waitForCopies(groups); }
uint32_t emuPack(float high, float low, uint32_t isHalf) { return packNumbers(high, low, isHalf != 0); }
float emuExp2(float x) { return exp2Flushed(x); }
float emuReciprocal(float x) { return reciprocalFlushed(x); }
void *emuLoad(void *address, uint32_t bytes, uint32_t alignment, uint32_t site) {
  const bool may = grid->access(reinterpret_cast<uintptr_t>(address), bytes, alignment, false, site);
  if (grid->isLost())
    grid->leave();
  return may ? address : grid->elsewhere;
}
void *emuStore(void *address, uint32_t bytes, uint32_t alignment, uint32_t site) {
  const bool may = grid->access(reinterpret_cast<uintptr_t>(address), bytes, alignment, true, site);
  if (grid->isLost())
    grid->leave();
  return may ? address : grid->elsewhere;
}

bool reached = false;
void emuReached(uint32_t matters) { reached |= matters != 0; }
void emuFence() { grid->fence(); }
void emuCount(void *address, uint32_t site) { grid->count(reinterpret_cast<uintptr_t>(address), site); }

} // namespace

bool zorse::emulator::takeReached() { return std::exchange(reached, false); }

const std::vector<Hook> &zorse::emulator::hooks() {
  static const std::vector<Hook> all = {
      {"emu_thread", reinterpret_cast<void *>(emuThread)},     {"emu_block", reinterpret_cast<void *>(emuBlock)},
      {"emu_shared", reinterpret_cast<void *>(emuShared)},     {"emu_barrier", reinterpret_cast<void *>(emuBarrier)},
      {"emu_exchange", reinterpret_cast<void *>(emuExchange)}, {"emu_ballot", reinterpret_cast<void *>(emuBallot)},
      {"emu_load", reinterpret_cast<void *>(emuLoad)},         {"emu_store", reinterpret_cast<void *>(emuStore)},
      {"emu_reached", reinterpret_cast<void *>(emuReached)},   {"emu_fence", reinterpret_cast<void *>(emuFence)},
      {"emu_count", reinterpret_cast<void *>(emuCount)}, 
      {"emu_multiply", reinterpret_cast<void *>(emuMultiply)}, {"emu_matrices", reinterpret_cast<void *>(emuMatrices)},
      {"emu_copy", reinterpret_cast<void *>(emuCopy)},         {"emu_commit", reinterpret_cast<void *>(emuCommit)},
      {"emu_wait", reinterpret_cast<void *>(emuWait)},         {"emu_warp_barrier", reinterpret_cast<void *>(emuWarpBarrier)},
      {"emu_pack", reinterpret_cast<void *>(emuPack)},         {"emu_exp2", reinterpret_cast<void *>(emuExp2)},
      {"emu_reciprocal", reinterpret_cast<void *>(emuReciprocal)},
  };
  return all;
}

std::vector<std::string> zorse::emulator::runGrid(const HostKernel &kernel, const GridLaunch &launch, Traffic *traffic) {
  thread_local Grid all; // stacks are kept from launch to launch
  all.findings.clear();
  all.counts.clear();
  all.found = 0;
  all.touched.clear();
  all.given.clear();
  all.traffic = traffic;
  all.read.clear();
  all.written.clear();
  all.kernel = &kernel;
  all.launch = &launch;
  all.shared.assign(all.sharedBytes() / sizeof(Grid::Line) + 1, Grid::Line());
  if (launch.threads % 32)
    return {"launch: " + std::to_string(launch.threads) + " threads in a block are no whole number of warps"};
  if (all.threads.size() < launch.threads)
    all.threads.resize(1024);
  grid = &all;
  for (all.block = 0; all.block < launch.blocks && all.findings.size() < 10 && !all.isLost(); ++all.block) {
    all.runBlock();
    if (traffic)
      all.countBlock();
  }
  if (traffic)
    traffic->distinctSectors += all.read.size() + all.written.size();
  grid = nullptr;
  return all.findings;
}
