// Runs a launch of a kernel: blocks, warps, and groups of lanes in an order determined by a seed.
//
// Findings:
// - accesses beyond the memory that the launch names, and misaligned accesses;
// - two unordered accesses to the same bytes, one of them a write;
// - addresses, branches and stored values that depend on undefined bits;
// - barriers and warp operations that not all of their threads reach;
// - an endless loop.
//
// The data of cp.async arrives when its thread waits for it.
#pragma once

#include "Grid.h"
#include "Memory.h"
#include "Warp.h"

#include <random>

namespace zorse::emulator::ptx {

class Launch {
public:
  /// \param global  contains the regions that the launch names
  Launch(const Kernel &kernel, const GridLaunch &grid, Memory &global, uint64_t seed);

  /// Findings, at most a few of each kind.
  std::vector<std::string> run();

private:
  const Kernel &kernel;
  const GridLaunch &grid;
  Memory &global;
  Memory shared;
  std::vector<uint8_t> sharedBytes;
  Order order;
  std::mt19937_64 random;
  uint32_t block = 0, epoch = 0;
  std::vector<Warp> warps;
  std::vector<std::string> findings;
  std::map<std::string, int> counts;

  /// Ends a launch with too many findings.
  struct Stop {};
  void find(const char *kind, const Warp &warp, uint32_t lane, const Instruction &instruction,
            const std::string &what);
  uint32_t below(size_t end) { return uint32_t(random() % end); }

  // ---- Order of execution (Launch.cpp).
  void beginBlock();
  void runBlock();
  bool finishBarrier();
  void runWarp(Warp &warp);
  uint32_t choose(const Warp &warp);
  void runLanes(Warp &warp, uint32_t lanes);
  /// The lanes with a true guard.
  uint32_t guarded(Warp &warp, const Instruction &instruction, uint32_t lanes);
  bool branch(Warp &warp, const Instruction &instruction, uint32_t &lanes, uint32_t open,
              uint32_t &counter);
  void arrive(Warp &warp, const Instruction &instruction, uint32_t open, uint32_t counter);
  bool finishWarpOperation(Warp &warp);
  void reportLost();
  void execute(Warp &warp, const Instruction &instruction, uint32_t lanes);
  void executeSpecial(Warp &warp, const Instruction &instruction, uint32_t lanes);

  // ---- Memory (LaunchMemory.cpp).
  Moment now(const Warp &warp, uint32_t lane) const;
  /// The region of an access if it is allowed; otherwise null, with findings.
  Region *reach(Warp &warp, uint32_t lane, const Instruction &instruction, Space space,
                const Access &access);
  bool addressOf(Warp &warp, uint32_t lane, const Instruction &instruction, const Source &base,
                 uint64_t offset, uint64_t &address);
  bool isDefined(Warp &warp, uint32_t lane, const Instruction &instruction, const Source &source,
                 uint32_t bits, const char *what);
  void loadParameter(Warp &warp, const Instruction &instruction, uint32_t lanes);
  void load(Warp &warp, const Instruction &instruction, uint32_t lane);
  void store(Warp &warp, const Instruction &instruction, uint32_t lane);
  void increment(Warp &warp, const Instruction &instruction, uint32_t lane);
  void copy(Warp &warp, const Instruction &instruction, uint32_t lane);
  void wait(Warp &warp, const Instruction &instruction, uint32_t lane);
  void fence(Warp &warp, uint32_t lane);
  void loadMatrices(Warp &warp, const Instruction &instruction);
};

} // namespace zorse::emulator::ptx
