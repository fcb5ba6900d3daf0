// The part of NCCL that this runtime uses, by declarations of our own: no toolkit is needed to build, no NCCL to start. Names and values are those of
// nccl.h (2.14 to 2.28); test/runtime/NcclDeclarationsTest.cpp holds them against the header where there is one.
#pragma once

#include "zorse/runtime/Status.h"

#include <cstddef>
#include <string>

namespace zorse::runtime::nccl {

using Comm = void *;
using Stream = void *;

inline constexpr int kSuccess = 0, kInvalidUsage = 5, kRemoteError = 6, kInProgress = 7;
inline constexpr int kInt8 = 0, kFloat64 = 8; ///< types of elements

struct UniqueId {
  char internal[128];
};

/// The head of ncclConfig_t, as 2.14 has it: later versions take their defaults for the rest.
struct Config {
  size_t size = sizeof(Config);
  unsigned magic = 0xcafebeef;
  unsigned version = 21400;
  int blocking = 0;
};

// name in the library, result, parameters
#define ZORSE_NCCL_FUNCTIONS(F)                                                                                                                      \
  F(ncclGetVersion, (int *version))                                                                                                                  \
  F(ncclGetUniqueId, (UniqueId * id))                                                                                                                \
  F(ncclCommInitRankConfig, (Comm * comm, int ranks, UniqueId id, int rank, Config *config))                                                         \
  F(ncclCommGetAsyncError, (Comm comm, int *error))                                                                                                  \
  F(ncclCommFinalize, (Comm comm))                                                                                                                   \
  F(ncclCommDestroy, (Comm comm))                                                                                                                    \
  F(ncclCommAbort, (Comm comm))                                                                                                                      \
  F(ncclGroupStart, ())                                                                                                                              \
  F(ncclGroupEnd, ())                                                                                                                                \
  F(ncclSend, (const void *data, size_t count, int type, int peer, Comm comm, Stream stream))                                                        \
  F(ncclRecv, (void *data, size_t count, int type, int peer, Comm comm, Stream stream))                                                              \
  F(ncclBroadcast, (const void *from, void *to, size_t count, int type, int root, Comm comm, Stream stream))                                         \
  F(ncclAllGather, (const void *from, void *to, size_t count, int type, Comm comm, Stream stream))

struct NcclApi {
// NOLINTNEXTLINE(bugprone-macro-parentheses): a declaration
#define ZORSE_MEMBER(name, parameters) int(*name) parameters = nullptr;
  ZORSE_NCCL_FUNCTIONS(ZORSE_MEMBER)
#undef ZORSE_MEMBER
  const char *(*ncclGetErrorString)(int error) = nullptr;
  const char *(*ncclGetLastError)(Comm comm) = nullptr;

  /// "ncclSend: invalid usage (what NCCL says besides)". \param comm  may be null
  std::string describe(const char *call, int result, Comm comm) const;
};

/// libnccl.so.2, once per process; an error where there is none, or one that is too old.
Result<const NcclApi *> ncclApi();

} // namespace zorse::runtime::nccl
