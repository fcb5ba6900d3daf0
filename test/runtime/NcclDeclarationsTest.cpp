// Compares the declarations of NcclApi.h with nccl.h: names, parameters, values and layouts. The
// test passes if it compiles.
#include "ForeignTypes.h"
#include "transport/nccl/NcclApi.h"

#include <nccl.h>

#include <cstddef>

#include <gtest/gtest.h>

using namespace zorse::runtime;

namespace zorse::runtime::test {

template <> struct Plain<ncclComm> {
  using Type = void;
};
template <> struct Plain<CUstream_st> {
  using Type = void;
};
template <> struct Plain<ncclUniqueId> {
  using Type = nccl::UniqueId;
};
template <> struct Plain<ncclConfig_t> {
  using Type = nccl::Config;
};

#define ZORSE_SAME(name, parameters)                                                               \
  static_assert(isDeclarationOf<decltype(&::name), decltype(nccl::NcclApi::name)>, #name);
ZORSE_NCCL_FUNCTIONS(ZORSE_SAME)
ZORSE_SAME(ncclGetErrorString, )
ZORSE_SAME(ncclGetLastError, )

static_assert(nccl::kSuccess == ncclSuccess && nccl::kInvalidUsage == ncclInvalidUsage &&
              nccl::kRemoteError == ncclRemoteError && nccl::kInProgress == ncclInProgress &&
              nccl::kInt8 == ncclInt8 && nccl::kFloat64 == ncclFloat64);
static_assert(sizeof(nccl::UniqueId) == sizeof(ncclUniqueId));
static_assert(offsetof(nccl::Config, size) == offsetof(ncclConfig_t, size) &&
              offsetof(nccl::Config, magic) == offsetof(ncclConfig_t, magic) &&
              offsetof(nccl::Config, version) == offsetof(ncclConfig_t, version) &&
              offsetof(nccl::Config, blocking) == offsetof(ncclConfig_t, blocking));

} // namespace zorse::runtime::test

TEST(NcclDeclarations, AreThoseOfTheHeader) {
  const ncclConfig_t theirs = NCCL_CONFIG_INITIALIZER;
  EXPECT_EQ(nccl::Config().magic, theirs.magic);
  EXPECT_LE(nccl::Config().version, theirs.version);
  printf("nccl.h %d.%d.%d\n", NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH);
}
