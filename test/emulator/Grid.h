// Runs the threads of a CUDA grid on the host, one block at a time, and checks their memory
// accesses.
//
// A thread is a fiber if its kernel has warp or block operations, and a plain call otherwise. The
// following are findings:
//
// - an access to memory that the launch does not name, or a misaligned access;
// - a read of shared memory that was never written;
// - accesses of two threads that no barrier orders;
// - an operation of a warp or a block that not all of its threads reach;
// - an access to the destination of cp.async before its thread waits for the copy. Until then its
// bytes are poisoned.
//
// Blocks are ordered only by a counter in common memory, with a fence before and after it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace zorse::emulator {

/// A byte range that a kernel may access.
struct Range {
  uintptr_t begin = 0, end = 0;
  bool writable = false;
};

/// A kernel compiled for the host (HostCode.h).
struct HostKernel {
  void (*call)(const uint64_t *parameters) = nullptr;
  bool collective = false;  ///< has operations of warps or blocks
  bool checked = false;     ///< its accesses are checked
  uint64_t sharedBytes = 0; ///< declared in its code; the launch's shared memory follows
  uint32_t parameters = 0, blockThreads = 0;       ///< declared in its code; 0: any block size
  std::vector<Range> constants;                    ///< constant tables of its module
  std::vector<Range> common;                       ///< memory of its module that all blocks share
  const std::vector<std::string> *sites = nullptr; ///< names of accesses and operations in findings
};

struct GridLaunch {
  uint32_t blocks = 1, threads = 1;
  uint32_t sharedBytes = 0; ///< per block, in addition to the declared ones
  std::vector<uint64_t> parameters;
  std::vector<Range> operands;
};

/// The traffic of a launch between global memory and its threads. The lanes of a warp access memory
/// together; memory moves in sectors of 32 bytes.
struct Traffic {
  uint64_t requests = 0;        ///< requests of warps
  uint64_t usedBytes = 0;       ///< bytes that any lane requests, each counted once per request
  uint64_t sectors = 0;         ///< sectors that a request touches, summed over requests
  uint64_t distinctSectors = 0; ///< distinct sectors that the launch reads, plus those that it
                                ///< writes
  uint64_t sharedWavefronts = 0, minWavefronts = 0; ///< of shared memory (SharedBanks.h): actual
                                                    ///< number, and number without bank conflicts

  double conflictFactor() const {
    return minWavefronts ? double(sharedWavefronts) / double(minWavefronts) : 1;
  }
  double efficiency() const { return sectors ? double(usedBytes) / (32.0 * double(sectors)) : 1; }
};

/// Runs a launch. Returns findings, at most a few of each kind. Not reentrant within a host thread.
/// \param traffic  the launch's traffic is added to it; null: not counted. Only for code with
/// checked accesses.
std::vector<std::string> runGrid(const HostKernel &kernel, const GridLaunch &launch,
                                 Traffic *traffic = nullptr);

/// Whether a planted bug was reached since the last call.
bool takeReached();

/// A function that compiled kernels call by name.
struct Hook {
  const char *name;
  void *address;
};
const std::vector<Hook> &hooks();

} // namespace zorse::emulator
