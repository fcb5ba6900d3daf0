// Queries a launcher that supports PMIx. The library is loaded only if needed, so that the program
// does not depend on it. Only reserved keys are read; the server answers these without other ranks.
// PMIx_Finalize follows immediately, so that this process can end like any other.
#include "zorse/runtime/Launch.h"

#ifdef ZORSE_HAVE_PMIX
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <pmix.h>
#endif

using namespace zorse::runtime;

#ifndef ZORSE_HAVE_PMIX

Result<PmixInfo> zorse::runtime::askPmix() {
  return userError("this program was built without PMIx (Debian: libpmix-dev)");
}

#else

namespace {

template <typename F> bool find(void *library, const char *name, F *&function) {
  function = reinterpret_cast<F *>(::dlsym(library, name));
  return function != nullptr;
}

struct Client {
  decltype(PMIx_Init) *init = nullptr;
  decltype(PMIx_Get) *get = nullptr;
  decltype(PMIx_Finalize) *finalize = nullptr;
  decltype(PMIx_Error_string) *errorText = nullptr;

  /// Reads a value of the job (rank PMIX_RANK_WILDCARD) or of one rank. The caller must release it.
  pmix_status_t read(const pmix_proc_t &self, pmix_rank_t rank, const char *key,
                     pmix_value_t *&value) const {
    pmix_proc_t whom;
    std::memset(&whom, 0, sizeof whom);
    std::memcpy(whom.nspace, self.nspace, sizeof whom.nspace);
    whom.rank = rank;
    value = nullptr;
    return get(&whom, key, nullptr, 0, &value);
  }
};

/// Frees a value. Supports only the requested types: numbers and strings.
void release(pmix_value_t *value) {
  if (value && value->type == PMIX_STRING)
    std::free(value->data.string);
  std::free(value);
}

bool numberOf(const pmix_value_t &value, uint32_t &number) {
  switch (value.type) {
  case PMIX_UINT32:
    number = value.data.uint32;
    return true;
  case PMIX_UINT16:
    number = value.data.uint16;
    return true;
  case PMIX_PROC_RANK:
    number = value.data.rank;
    return true;
  default:
    return false;
  }
}

} // namespace

Result<PmixInfo> zorse::runtime::askPmix() {
  void *library = ::dlopen("libpmix.so.2", RTLD_NOW | RTLD_LOCAL);
  if (!library)
    return userError(std::string("the PMIx library cannot be loaded: ") + ::dlerror());
  Client client;
  if (!find(library, "PMIx_Init", client.init) || !find(library, "PMIx_Get", client.get) ||
      !find(library, "PMIx_Finalize", client.finalize) ||
      !find(library, "PMIx_Error_string", client.errorText))
    return userError(
        "libpmix.so.2 does not export PMIx_Init, PMIx_Get, PMIx_Finalize or PMIx_Error_string");

  pmix_proc_t self;
  std::memset(&self, 0, sizeof self);
  pmix_status_t status = client.init(&self, nullptr, 0);
  if (status != PMIX_SUCCESS)
    return userError(std::string("PMIx_Init: ") + client.errorText(status));

  PmixInfo info;
  std::string failure;
  auto number = [&](pmix_rank_t rank, const char *key, uint32_t &into) {
    pmix_value_t *value = nullptr;
    pmix_status_t found = client.read(self, rank, key, value);
    if (failure.empty() && (found != PMIX_SUCCESS || !value || !numberOf(*value, into)))
      failure = std::string("PMIx_Get of ") + key + ": " + client.errorText(found);
    release(value);
  };
  number(PMIX_RANK_WILDCARD, PMIX_JOB_SIZE, info.worldSize);
  number(PMIX_RANK_WILDCARD, PMIX_LOCAL_SIZE, info.localRanks);
  number(self.rank, PMIX_LOCAL_RANK, info.localRank);
  pmix_value_t *host = nullptr;
  if (client.read(self, 0, PMIX_HOSTNAME, host) == PMIX_SUCCESS && host &&
      host->type == PMIX_STRING && host->data.string)
    info.firstHost = host->data.string; // empty if unknown: a job on one host does not need it
  release(host);
  client.finalize(nullptr, 0);
  if (!failure.empty())
    return userError(failure);
  return info;
}

#endif
