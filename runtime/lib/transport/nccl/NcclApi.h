// Declarations of the part of NCCL that the runtime uses. No toolkit is needed to build, and no
// NCCL to start. Names and values are those of nccl.h (2.14 to 2.28);
// test/runtime/NcclDeclarationsTest.cpp compares them with the header if one is installed.
#pragma once

#include "zorse/runtime/Status.h"

#include <cstddef>
#include <string>

namespace zorse::runtime::nccl {

using Comm = void *;
using Stream = void *;

inline constexpr int kSuccess = 0, kInvalidUsage = 5, kRemoteError = 6, kInProgress = 7;
inline constexpr int kInt8 = 0, kFloat64 = 8; ///< element types

struct UniqueId {
  char internal[128];
};

/// The beginning of ncclConfig_t in version 2.14. Later versions use their defaults for the
/// remaining fields.
struct Config {
  size_t size = sizeof(Config);
  unsigned magic = 0xcafebeef;
  unsigned version = 21400;
  int blocking = 0;
};

// name in the library, result, parameters
#define ZORSE_NCCL_FUNCTIONS(F)                                                                    \
  F(ncclGetVersion, (int *version))                                                                \
  F(ncclGetUniqueId, (UniqueId * id))                                                              \
  F(ncclCommInitRankConfig, (Comm * comm, int ranks, UniqueId id, int rank, Config *config))       \
  F(ncclCommGetAsyncError, (Comm comm, int *error))                                                \
  F(ncclCommFinalize, (Comm comm))                                                                 \
  F(ncclCommDestroy, (Comm comm))                                                                  \
  F(ncclCommAbort, (Comm comm))                                                                    \
  F(ncclGroupStart, ())                                                                            \
  F(ncclGroupEnd, ())                                                                              \
  F(ncclSend, (const void *data, size_t count, int type, int peer, Comm comm, Stream stream))      \
  F(ncclRecv, (void *data, size_t count, int type, int peer, Comm comm, Stream stream))            \
  F(ncclBroadcast,                                                                                 \
    (const void *from, void *to, size_t count, int type, int root, Comm comm, Stream stream))      \
  F(ncclAllGather, (const void *from, void *to, size_t count, int type, Comm comm, Stream stream))

struct NcclApi {
// NOLINTNEXTLINE(bugprone-macro-parentheses): a declaration
#define ZORSE_MEMBER(name, parameters) int(*name) parameters = nullptr;
  ZORSE_NCCL_FUNCTIONS(ZORSE_MEMBER)
#undef ZORSE_MEMBER
  const char *(*ncclGetErrorString)(int error) = nullptr;
  const char *(*ncclGetLastError)(Comm comm) = nullptr;

  /// "ncclSend: invalid usage (NCCL's last error)".
  /// \param comm  may be null
  std::string describe(const char *call, int result, Comm comm) const;
};

/// Loads libnccl.so.2 once per process. Returns an error if it is missing or too old.
Result<const NcclApi *> ncclApi();

} // namespace zorse::runtime::nccl
