#include "Launch.h"

#include <algorithm>
#include <numeric>

using namespace zorse::emulator;
using namespace zorse::emulator::ptx;

/// Maximum instructions per warp and block; kernels of the suite need far fewer.
static constexpr uint64_t kMaxSteps = 3'000'000;
static constexpr int kMaxOfAKind = 3;

Launch::Launch(const Kernel &kernel, const GridLaunch &grid, Memory &global, uint64_t seed)
    : kernel(kernel), grid(grid), global(global), order(grid.threads), random(seed) {}

void Launch::find(const char *kind, const Warp &warp, uint32_t lane, const Instruction &instruction,
                  const std::string &what) {
  const int count = ++counts[kind];
  if (count <= kMaxOfAKind)
    findings.push_back(std::string(kind) + ": " + what + ", block " + std::to_string(block) +
                       ", thread " + std::to_string(warp.first + lane) + ", at " + kernel.name +
                       ":" + std::to_string(instruction.line) + ": " + instruction.text);
  if (count > 1000)
    throw Stop();
}

std::vector<std::string> Launch::run() {
  if (grid.threads == 0 || grid.threads % 32 || (kernel.threads && kernel.threads != grid.threads))
    return {"launch: " + std::to_string(grid.threads) + " threads in a block, the kernel is for " +
            std::to_string(kernel.threads)};
  if (grid.parameters.size() != kernel.parameterBytes.size())
    return {"launch: " + std::to_string(grid.parameters.size()) + " parameters for " +
            std::to_string(kernel.parameterBytes.size())};
  global.begin(kernel.granule);
  warps.resize(grid.threads / 32);
  std::vector<uint32_t> blocks(grid.blocks);
  std::iota(blocks.begin(), blocks.end(), 0u);
  std::shuffle(blocks.begin(), blocks.end(), random);
  try {
    for (uint32_t next : blocks) {
      block = next;
      beginBlock();
      runBlock();
      if (!findings.empty())
        break; // the other findings are consequences of these
    }
  } catch (const Stop &) {
    findings.push_back("stopped: more findings than anyone reads");
  }
  return findings;
}

void Launch::beginBlock() {
  epoch = 0;
  const uint64_t end = kernel.launchShared ? kernel.launchShared + grid.sharedBytes
                                           : kernel.sharedEnd;
  sharedBytes.assign(end - kSharedBase, 0xff);
  shared.clear();
  auto add = [&](const std::string &name, uint64_t begin, uint64_t regionEnd) {
    Region region;
    region.name = name;
    region.begin = begin, region.end = regionEnd;
    region.bytes = sharedBytes.data() + (begin - kSharedBase);
    region.isWritable = true;
    region.defined.assign(regionEnd - begin, 0);
    shared.add(std::move(region));
  };
  for (const SharedVariable &v : kernel.shared)
    add(v.name, v.begin, v.end);
  if (kernel.launchShared && grid.sharedBytes)
    add("the launch's shared memory", kernel.launchShared, end);
  shared.begin(kernel.granule);
  for (uint32_t i = 0; i < warps.size(); ++i)
    warps[i].reset(32 * i, kernel.widths.size());
}

static uint32_t lanesIn(const Warp &warp, LaneState state) {
  uint32_t lanes = 0;
  for (uint32_t lane = 0; lane < 32; ++lane)
    lanes |= uint32_t(warp.lanes[lane].state == state) << lane;
  return lanes;
}

void Launch::runBlock() {
  for (;;) {
    std::vector<Warp *> ready;
    for (Warp &warp : warps)
      if (lanesIn(warp, LaneState::Ready))
        ready.push_back(&warp);
    if (!ready.empty()) {
      runWarp(*ready[below(ready.size())]);
      if (counts["no end"])
        return;
      continue;
    }
    if (std::all_of(warps.begin(), warps.end(),
                    [](const Warp &warp) { return lanesIn(warp, LaneState::Done) == ~0u; }))
      return;
    if (!finishBarrier())
      return reportLost();
  }
}

/// Releases the block's barrier if all threads have reached it.
bool Launch::finishBarrier() {
  const uint32_t counter = warps[0].lanes[0].counter;
  for (const Warp &warp : warps)
    for (const Lane &lane : warp.lanes)
      if (lane.state != LaneState::AtBlock || lane.counter != counter)
        return false;
  ++epoch;
  for (Warp &warp : warps)
    for (Lane &lane : warp.lanes) {
      lane.state = LaneState::Ready;
      ++lane.counter;
    }
  return true;
}

/// Reports threads that cannot continue.
void Launch::reportLost() {
  for (const Warp &warp : warps)
    for (uint32_t lane = 0; lane < 32; ++lane)
      if (warp.lanes[lane].state == LaneState::AtWarp)
        return find("divergent", warp, lane, kernel.code[warp.lanes[lane].counter],
                    "not all lanes of a warp reach an operation of the warp");
  for (const Warp &warp : warps)
    for (uint32_t lane = 0; lane < 32; ++lane)
      if (warp.lanes[lane].state == LaneState::AtBlock)
        return find("divergent", warp, lane, kernel.code[warp.lanes[lane].counter],
                    "not all threads of a block reach a barrier");
}

/// Chooses lanes at the same instruction: mostly those with the lowest counter, so that they rejoin
/// the others; sometimes any, and sometimes only a part of them.
uint32_t Launch::choose(const Warp &warp) {
  const uint32_t ready = lanesIn(warp, LaneState::Ready);
  uint32_t leader = uint32_t(__builtin_ctz(ready));
  const uint64_t dice = random();
  const bool behind = dice & 3;
  uint32_t skip = uint32_t(dice >> 8 & 0xffff) % uint32_t(__builtin_popcount(ready));
  forLanes(ready, [&](uint32_t lane) {
    if (behind ? warp.lanes[lane].counter < warp.lanes[leader].counter : skip-- == 0)
      leader = lane;
  });
  uint32_t lanes = 0;
  forLanes(ready, [&](uint32_t lane) {
    lanes |= uint32_t(warp.lanes[lane].counter == warp.lanes[leader].counter) << lane;
  });
  const auto part = uint32_t(dice >> 32);
  return (dice >> 24 & 31) == 0 && (lanes & part) ? lanes & part : lanes;
}

void Launch::runWarp(Warp &warp) {
  for (uint32_t groups = 1 + below(8); groups > 0 && lanesIn(warp, LaneState::Ready); --groups) {
    runLanes(warp, choose(warp));
    finishWarpOperation(warp);
  }
}

uint32_t Launch::guarded(Warp &warp, const Instruction &i, uint32_t lanes) {
  if (i.guard < 0)
    return lanes;
  const uint64_t *values = warp.value(i.guard);
  uint32_t open = 0;
  forLanes(lanes, [&](uint32_t lane) {
    open |= uint32_t((values[lane] & 1) != uint64_t(i.isNegated)) << lane;
  });
  if (const uint32_t undefined = warp.undefinedLanes[size_t(i.guard)] & lanes)
    forLanes(undefined, [&](uint32_t lane) {
      find("undefined", warp, lane, i, "a guard depends on what is not defined");
    });
  return open;
}

/// \returns whether `lanes` still stay together, at `counter`
bool Launch::branch(Warp &warp, const Instruction &i, uint32_t &lanes, uint32_t open,
                    uint32_t &counter) {
  const bool isWhole = lanes == lanesIn(warp, LaneState::Ready);
  if (isWhole && (open == lanes || open == 0) && (random() & 15)) {
    counter = open ? i.target : counter + 1;
    return true;
  }
  forLanes(lanes, [&](uint32_t lane) {
    warp.lanes[lane].counter = open >> lane & 1 ? i.target : counter + 1;
  });
  return false;
}

void Launch::runLanes(Warp &warp, uint32_t lanes) {
  uint32_t counter = warp.lanes[__builtin_ctz(lanes)].counter;
  for (;;) {
    if (counter >= kernel.code.size())
      return find("no end", warp, 0, kernel.code.back(), "runs beyond the kernel");
    const Instruction &i = kernel.code[counter];
    if (++warp.steps > kMaxSteps)
      return find("no end", warp, uint32_t(__builtin_ctz(lanes)), i, "a loop does not end");
    ++i.reached;
    const uint32_t open = guarded(warp, i, lanes);
    switch (i.kind) {
    case Kind::Branch:
      if (!branch(warp, i, lanes, open, counter))
        return;
      continue;
    case Kind::Return:
      forLanes(lanes, [&](uint32_t lane) {
        warp.lanes[lane].counter = counter + 1;
        if (open >> lane & 1)
          warp.lanes[lane].state = LaneState::Done;
      });
      return;
    case Kind::BlockBarrier:
    case Kind::WarpBarrier:
    case Kind::Exchange:
    case Kind::Ballot:
    case Kind::Multiply:
    case Kind::LoadMatrices:
      forLanes(lanes & ~open, [&](uint32_t lane) { warp.lanes[lane].counter = counter + 1; });
      arrive(warp, i, open, counter);
      if (open == lanes && open == ~0u && finishWarpOperation(warp)) {
        ++counter;
        continue;
      }
      return;
    default:
      if (open)
        execute(warp, i, open);
      ++counter;
    }
  }
}

void Launch::arrive(Warp &warp, const Instruction &i, uint32_t open, uint32_t counter) {
  const Source *members = i.kind == Kind::WarpBarrier ? &i.sources[0]
                          : i.kind == Kind::Exchange  ? &i.sources[3]
                          : i.kind == Kind::Ballot    ? &i.sources[1]
                                                      : nullptr;
  forLanes(open, [&](uint32_t at) {
    Lane &lane = warp.lanes[at];
    lane.counter = counter;
    lane.state = i.kind == Kind::BlockBarrier ? LaneState::AtBlock : LaneState::AtWarp;
    lane.members = members ? uint32_t(warp.valueOf(*members, at)) : ~0u;
    if (!(lane.members >> at & 1))
      find("divergent", warp, at, i, "a lane takes part that is no member");
  });
}

/// Executes a warp operation that all of its members have reached. \returns whether there was one
bool Launch::finishWarpOperation(Warp &warp) {
  uint32_t waiting = lanesIn(warp, LaneState::AtWarp);
  for (; waiting; waiting &= waiting - 1) {
    const Lane &one = warp.lanes[__builtin_ctz(waiting)];
    const uint32_t members = one.members, counter = one.counter;
    bool all = true;
    forLanes(members, [&](uint32_t at) {
      const Lane &lane = warp.lanes[at];
      all &= lane.state == LaneState::AtWarp && lane.counter == counter && lane.members == members;
    });
    if (!all)
      continue;
    const Instruction &i = kernel.code[counter];
    if (i.kind == Kind::WarpBarrier && members == ~0u)
      ++warp.turn;
    else if (i.kind == Kind::Exchange)
      executeExchange(warp, i, members);
    else if (i.kind == Kind::Ballot)
      executeBallot(warp, i, members);
    else if (i.kind == Kind::Multiply)
      executeMultiply(warp, i);
    else if (i.kind == Kind::LoadMatrices)
      loadMatrices(warp, i);
    forLanes(members, [&](uint32_t at) {
      warp.lanes[at].state = LaneState::Ready;
      ++warp.lanes[at].counter;
    });
    return true;
  }
  return false;
}

void Launch::execute(Warp &warp, const Instruction &i, uint32_t lanes) {
  auto each = [&](void (Launch::*one)(Warp &, const Instruction &, uint32_t)) {
    forLanes(lanes, [&](uint32_t lane) { (this->*one)(warp, i, lane); });
  };
  switch (i.kind) {
  case Kind::Scalar:
    return executeScalar(warp, i, lanes);
  case Kind::Pack:
    return executePack(warp, i, lanes);
  case Kind::Unpack:
    return executeUnpack(warp, i, lanes);
  case Kind::Special:
    return executeSpecial(warp, i, lanes);
  case Kind::LoadParameter:
    return loadParameter(warp, i, lanes);
  case Kind::Load:
    return each(&Launch::load);
  case Kind::Store:
    return each(&Launch::store);
  case Kind::Increment:
    return each(&Launch::increment);
  case Kind::Copy:
    return each(&Launch::copy);
  case Kind::Wait:
    return each(&Launch::wait);
  case Kind::Commit:
    return forLanes(lanes, [&](uint32_t lane) { ++warp.lanes[lane].group; });
  case Kind::Fence:
    return forLanes(lanes, [&](uint32_t lane) { fence(warp, lane); });
  default:
    find("no end", warp, 0, i, "is not executed here");
  }
}

void Launch::executeSpecial(Warp &warp, const Instruction &i, uint32_t lanes) {
  forLanes(lanes, [&](uint32_t lane) {
    const uint32_t value = i.special == Special::Thread    ? warp.first + lane
                           : i.special == Special::Block   ? block
                           : i.special == Special::Threads ? grid.threads
                                                           : grid.blocks;
    warp.set(i.results[0], lane, value, 0);
  });
}
