// Runs the threads of a CUDA grid on the host, one block after the other, and watches what they do.
//
// A thread is a fiber where its kernel has warp or block operations, and a plain call where it has none. Memory that the launch does not name,
// misaligned accesses, shared memory that nobody has written, and accesses of two threads that no barrier orders are findings; so is an operation of
// a warp or a block that not all of its threads reach. What cp.async copies lands when its thread waits for it: until then the bytes are poisoned,
// and touching them is a finding. Blocks are ordered by nothing but a counter in common memory, with a fence before and behind.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace zorse::emulator {

/// Bytes that a kernel may touch.
struct Range {
  uintptr_t begin = 0, end = 0;
  bool writable = false;
};

/// Code compiled for the host (HostCode.h).
struct HostKernel {
  void (*call)(const uint64_t *parameters) = nullptr;
  bool collective = false;                         ///< has operations of warps or blocks.
  bool checked = false;                            ///< its accesses are watched
  uint64_t sharedBytes = 0;                        ///< that its code declares; what a launch gives lies behind
  uint32_t parameters = 0, blockThreads = 0;       ///< that its code declares; 0: blocks of any size
  std::vector<Range> constants;                    ///< tables of its module
  std::vector<Range> common;                       ///< memory of its module that all blocks share
  const std::vector<std::string> *sites = nullptr; ///< what findings call an access or operation
};

struct GridLaunch {
  uint32_t blocks = 1, threads = 1;
  uint32_t sharedBytes = 0; ///< of a block, beside what the code declares
  std::vector<uint64_t> parameters;
  std::vector<Range> operands;
};

/// What a launch moves between global memory and its threads. The lanes of a warp access together; memory moves in sectors of 32 bytes.
struct Traffic {
  uint64_t requests = 0;                              ///< of warps
  uint64_t usedBytes = 0;                             ///< that some lane asked for, each once per request
  uint64_t sectors = 0;                               ///< that a request touches, summed over requests
  uint64_t distinctSectors = 0;                       ///< read by the launch, and written by it, each once
  uint64_t sharedWavefronts = 0, leastWavefronts = 0; ///< of shared memory (SharedBanks.h): as they are, and without bank conflicts

  double conflictFactor() const { return leastWavefronts ? double(sharedWavefronts) / double(leastWavefronts) : 1; }
  double efficiency() const { return sectors ? double(usedBytes) / (32.0 * double(sectors)) : 1; }
};

/// Runs a launch; returns findings, at most a few of each kind. Not reentrant in one host thread.
/// \param traffic  what it moves is added; null: it is not counted. Only of code whose accesses are watched.
std::vector<std::string> runGrid(const HostKernel &kernel, const GridLaunch &launch, Traffic *traffic = nullptr);

/// Whether a planted bug was reached since the last call of this.
bool takeReached();

/// What compiled kernels call, by name.
struct Hook {
  const char *name;
  void *address;
};
const std::vector<Hook> &hooks();

} // namespace zorse::emulator
