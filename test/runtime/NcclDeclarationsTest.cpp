// The declarations of NcclApi.h against nccl.h: the same names, parameters, values and layouts. Compiling it is the test.
#include "transport/nccl/NcclApi.h"

#include <nccl.h>

#include <cstddef>
#include <type_traits>

#include <gtest/gtest.h>

using namespace zorse::runtime;

namespace {

/// What a type of nccl.h is to us: enumerations are int, handles void *.
template <typename T> struct Plain {
  using Type = std::conditional_t<std::is_enum_v<T>, int, T>;
};
template <> struct Plain<ncclComm_t> {
  using Type = void *;
};
template <> struct Plain<cudaStream_t> {
  using Type = void *;
};
template <> struct Plain<ncclUniqueId> {
  using Type = nccl::UniqueId;
};
template <> struct Plain<ncclConfig_t> {
  using Type = nccl::Config;
};
template <typename T> struct Pointed {
  using Type = T;
};
template <typename T> struct Pointed<T *> {
  using Type = std::conditional_t<std::is_function_v<T>, T *, typename Plain<T>::Type *>;
};
template <> struct Pointed<ncclComm_t> {
  using Type = void *;
};
template <> struct Pointed<cudaStream_t> {
  using Type = void *;
};
template <typename T> using Ours = typename Pointed<typename Plain<T>::Type>::Type;

template <typename T> struct Function;
template <typename Result, typename... Parameters> struct Function<Result (*)(Parameters...)> {
  using Type = Ours<Result> (*)(Ours<Parameters>...);
};

#define ZORSE_SAME(name, parameters) static_assert(std::is_same_v<Function<decltype(&::name)>::Type, decltype(nccl::NcclApi::name)>, #name);
ZORSE_NCCL_FUNCTIONS(ZORSE_SAME)
ZORSE_SAME(ncclGetErrorString, )
ZORSE_SAME(ncclGetLastError, )

static_assert(nccl::kSuccess == ncclSuccess && nccl::kInvalidUsage == ncclInvalidUsage && nccl::kRemoteError == ncclRemoteError &&
              nccl::kInProgress == ncclInProgress && nccl::kInt8 == ncclInt8 && nccl::kFloat64 == ncclFloat64);
static_assert(sizeof(nccl::UniqueId) == sizeof(ncclUniqueId));
static_assert(offsetof(nccl::Config, size) == offsetof(ncclConfig_t, size) && offsetof(nccl::Config, magic) == offsetof(ncclConfig_t, magic) &&
              offsetof(nccl::Config, version) == offsetof(ncclConfig_t, version) &&
              offsetof(nccl::Config, blocking) == offsetof(ncclConfig_t, blocking));

} // namespace

TEST(NcclDeclarations, AreThoseOfTheHeader) {
  const ncclConfig_t theirs = NCCL_CONFIG_INITIALIZER;
  EXPECT_EQ(nccl::Config().magic, theirs.magic);
  EXPECT_LE(nccl::Config().version, theirs.version);
  printf("nccl.h %d.%d.%d\n", NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH);
}
