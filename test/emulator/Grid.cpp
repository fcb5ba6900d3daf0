#include "GridState.h"

#include <algorithm>
#include <csetjmp>
#include <cstring>
#include <utility>

using namespace zorse::emulator;

namespace {

constexpr uint64_t kStack = 64 << 10;

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
  // Functions expect a stack pointer 8 bytes off a multiple of 16 at their entry.
  char *top = stack + kStack - reinterpret_cast<uintptr_t>(stack + kStack) % 16;
  auto *words = reinterpret_cast<uint64_t *>(top) - 11;
  std::memset(words, 0, 80);
  words[0] = uint64_t(0x37f) << 32 | 0x1f80; // control words as at program start
  words[7] = reinterpret_cast<uint64_t>(main);
  context.stack = words;
}
#else
#error "the emulator switches between threads on x86-64 only"
#endif

} // namespace

void Grid::warpOperation(uint32_t first) {
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

void Grid::multiply(Thread *warp) {
  std::array<MultiplyOperands, 32> operands;
  std::array<FourRegisters, 32> results;
  for (size_t lane = 0; lane < 32; ++lane)
    operands[lane] = warp[lane].factors;
  multiplyMatrices(operands, warp[0].kind == 'h', results);
  for (size_t lane = 0; lane < 32; ++lane)
    warp[lane].four = results[lane];
}

void Grid::loadMatrices(uint32_t first) {
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

void Grid::exchange(Thread *warp) {
  uint32_t bits = 0;
  for (uint32_t lane = 0; lane < 32; ++lane)
    bits |= (warp[lane].value != 0 ? 1u : 0u) << lane;
  for (uint32_t lane = 0; lane < 32; ++lane)
    warp[lane].result = warp[lane].kind == 'b' ? bits : warp[lane ^ warp[lane].argument].value;
}

void Grid::wait(State state, uint32_t site) {
  Thread &self = threads[thread];
  self.state = state;
  self.site = site;
  switchTo(self.context, scheduler);
}

void Grid::leave() {
  if (!kernel->collective)
    std::longjmp(plain, 1);
  switchTo(threads[thread].context, scheduler);
}

namespace {

thread_local Grid *grid = nullptr;

void threadMain() {
  Grid &g = *grid;
  g.kernel->call(g.launch->parameters.data());
  g.threads[g.thread].state = State::Done;
  switchTo(g.threads[g.thread].context, g.scheduler);
}

} // namespace

void Grid::runBlock() {
  epoch = 0;
  fences.clear();
  counted = taken = {};
  touchedShared.assign(kernel->checked ? shared.size() * sizeof(Line) : 0,
                       Touched()); // every block has its own shared memory
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
      const auto atOne = [&](const Thread &t) {
        return t.state == State::Warp && t.site == warp[0].site;
      };
      if (std::all_of(warp, warp + 32, atOne)) {
        warpOperation(first);
        moved = true;
      } else if (std::any_of(warp, warp + 32,
                             [](const Thread &t) { return t.state == State::Warp; }) &&
                 std::none_of(warp, warp + 32,
                              [](const Thread &t) { return t.state == State::Ready; })) {
        thread = first;
        const Thread &waiting =
            *std::find_if(warp, warp + 32, [](const Thread &t) { return t.state == State::Warp; });
        find("divergent", waiting.site, "not all lanes of a warp reach an operation of the warp");
        return;
      }
    }
    if (std::all_of(threads.begin(), last, [](const Thread &t) { return t.state == State::Done; }))
      return;
    if (std::all_of(threads.begin(), last, [&](const Thread &t) {
          return t.state == State::Barrier && t.site == threads[0].site;
        })) {
      ++epoch;
      for (auto t = threads.begin(); t != last; ++t)
        t->state = State::Ready;
      moved = true;
    }
    if (!moved) {
      auto waiting = std::find_if(threads.begin(), last,
                                  [](const Thread &t) { return t.state == State::Barrier; });
      thread = uint32_t(waiting - threads.begin());
      find("divergent", waiting == last ? 0 : waiting->site,
           "not all threads of a block reach a barrier");
      return;
    }
  }
}

namespace {

// ---- Functions that kernels call.

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
  grid->beginCopy(reinterpret_cast<uintptr_t>(to), reinterpret_cast<uintptr_t>(from), bytes, size,
                  site);
}
void emuCommit() { ++grid->threads[grid->thread].group; }
void emuWait(uint32_t groups) { grid->waitForCopies(groups); }
uint32_t emuPack(float high, float low, uint32_t isHalf) {
  return packNumbers(high, low, isHalf != 0);
}
float emuWiden(uint32_t bits, uint32_t isHalf) { return widenNumber(uint16_t(bits), isHalf != 0); }
float emuExp2(float x) { return exp2Flushed(x); }
float emuReciprocal(float x) { return reciprocalFlushed(x); }
/// Called by compiled code on CPUs that do not round to bf16. The result is in the low half of the
/// register.
float emuRound(float x) {
  const uint32_t bits = packNumbers(0, x, false) & 0xffff;
  float result;
  std::memcpy(&result, &bits, sizeof result);
  return result;
}
void *emuLoad(void *address, uint32_t bytes, uint32_t alignment, uint32_t site) {
  const bool may =
      grid->access(reinterpret_cast<uintptr_t>(address), bytes, alignment, false, site);
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
void emuCount(void *address, uint32_t site) {
  grid->count(reinterpret_cast<uintptr_t>(address), site);
}

} // namespace

bool zorse::emulator::takeReached() { return std::exchange(reached, false); }

const std::vector<Hook> &zorse::emulator::hooks() {
  static const std::vector<Hook> all = {
      {"emu_thread", reinterpret_cast<void *>(emuThread)},
      {"emu_block", reinterpret_cast<void *>(emuBlock)},
      {"emu_shared", reinterpret_cast<void *>(emuShared)},
      {"emu_barrier", reinterpret_cast<void *>(emuBarrier)},
      {"emu_exchange", reinterpret_cast<void *>(emuExchange)},
      {"emu_ballot", reinterpret_cast<void *>(emuBallot)},
      {"emu_load", reinterpret_cast<void *>(emuLoad)},
      {"emu_store", reinterpret_cast<void *>(emuStore)},
      {"emu_reached", reinterpret_cast<void *>(emuReached)},
      {"emu_fence", reinterpret_cast<void *>(emuFence)},
      {"emu_count", reinterpret_cast<void *>(emuCount)},
      {"emu_multiply", reinterpret_cast<void *>(emuMultiply)},
      {"emu_matrices", reinterpret_cast<void *>(emuMatrices)},
      {"emu_copy", reinterpret_cast<void *>(emuCopy)},
      {"emu_commit", reinterpret_cast<void *>(emuCommit)},
      {"emu_wait", reinterpret_cast<void *>(emuWait)},
      {"emu_warp_barrier", reinterpret_cast<void *>(emuWarpBarrier)},
      {"emu_pack", reinterpret_cast<void *>(emuPack)},
      {"emu_widen", reinterpret_cast<void *>(emuWiden)},
      {"emu_exp2", reinterpret_cast<void *>(emuExp2)},
      {"emu_reciprocal", reinterpret_cast<void *>(emuReciprocal)},
      {"__truncsfbf2", reinterpret_cast<void *>(emuRound)},
  };
  return all;
}

std::vector<std::string> zorse::emulator::runGrid(const HostKernel &kernel,
                                                  const GridLaunch &launch, Traffic *traffic) {
  thread_local Grid all; // keeps the stacks from launch to launch
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
    return {"launch: " + std::to_string(launch.threads) +
            " threads in a block are no whole number of warps"};
  if (all.threads.size() < launch.threads)
    all.threads.resize(1024);
  grid = &all;
  for (all.block = 0; all.block < launch.blocks && all.findings.size() < 10 && !all.isLost();
       ++all.block) {
    all.runBlock();
    if (traffic)
      all.countBlock();
  }
  if (traffic)
    traffic->distinctSectors += all.read.size() + all.written.size();
  grid = nullptr;
  return all.findings;
}
