#include "NcclApi.h"

#include "zorse/runtime/DeviceTransport.h"

#include <dlfcn.h>

using namespace zorse::runtime;
using namespace zorse::runtime::nccl;

namespace {

/// First version with nonblocking communicators.
constexpr int kOldest = 21400;

std::string text(int version) {
  return std::to_string(version / 10000) + "." + std::to_string(version % 10000 / 100) + "." +
         std::to_string(version % 100);
}

Result<NcclApi> load() {
  void *library = ::dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  if (!library)
    return userError(std::string("GPUs exchange directly through NCCL: ") + ::dlerror() +
                     "; install it (libnccl2, or the Python package nvidia-nccl-cu13 with its "
                     "folder in LD_LIBRARY_PATH)");
  NcclApi api;
  std::string missing;
  auto find = [&](auto *&function, const char *name) {
    if (void *found = ::dlsym(library, name))
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(found);
    else
      missing += (missing.empty() ? "" : ", ") + std::string(name);
  };
#define ZORSE_LOAD(name, parameters) find(api.name, #name);
  ZORSE_NCCL_FUNCTIONS(ZORSE_LOAD)
#undef ZORSE_LOAD
  find(api.ncclGetErrorString, "ncclGetErrorString");
  find(api.ncclGetLastError, "ncclGetLastError");
  int version = 0;
  if (!missing.empty())
    return userError("libnccl.so.2 has no " + missing + ": install NCCL 2.14 or later");
  if (int result = api.ncclGetVersion(&version); result != kSuccess)
    return userError(api.describe("ncclGetVersion", result, nullptr));
  if (version < kOldest)
    return userError("NCCL " + text(version) + " is too old: install 2.14 or later");
  return api;
}

} // namespace

std::string NcclApi::describe(const char *call, int result, Comm comm) const {
  const char *more = comm ? ncclGetLastError(comm) : nullptr;
  return std::string(call) + ": " + ncclGetErrorString(result) +
         (more && *more ? std::string(" (") + more + ")" : "");
}

Result<const NcclApi *> zorse::runtime::nccl::ncclApi() {
  static const Result<NcclApi> api = load();
  if (api.failed())
    return api.error();
  return &*api;
}

Result<std::string> zorse::runtime::ncclVersion() {
  Result<const NcclApi *> api = ncclApi();
  if (api.failed())
    return api.error();
  int version = 0;
  (*api)->ncclGetVersion(&version);
  return text(version);
}
