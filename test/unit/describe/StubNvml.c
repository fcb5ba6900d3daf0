/* The part of NVML that zorse-cluster uses: two A100 with NVLink and one unknown card.
 * ZORSE_STUB_NVML=broken: it does not start; sliced: the second A100 is. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  unsigned long long total, free, used;
} Memory;

int nvmlInit_v2(void) {
  const char *how = getenv("ZORSE_STUB_NVML");
  return how && !strcmp(how, "broken") ? 9 : 0;
}
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) {
  *count = 3;
  return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) {
  *handle = (void *)(size_t)(index + 1);
  return 0;
}
static unsigned of(void *handle) { return (unsigned)(size_t)handle - 1; }
int nvmlDeviceGetName(void *handle, char *name, unsigned length) {
  snprintf(name, length, "%s", of(handle) < 2 ? "NVIDIA A100-SXM4-40GB" : "NVIDIA Mystery 9000");
  return 0;
}
int nvmlDeviceGetUUID(void *handle, char *uuid, unsigned length) {
  snprintf(uuid, length, "GPU-5f1c0000-0000-0000-0000-00000000000%u", of(handle));
  return 0;
}
int nvmlDeviceGetMigMode(void *handle, unsigned *mode, unsigned *next) {
  const char *how = getenv("ZORSE_STUB_NVML");
  *mode = *next = how && !strcmp(how, "sliced") && of(handle) == 1;
  return 0;
}
int nvmlDeviceGetMemoryInfo(void *handle, void *place) { // same types as in the caller, because
                                                         // sanitizers compare them
  Memory *memory = place;
  memory->total = of(handle) < 2 ? 42505273344ull : 8589934592ull;
  memory->free = memory->used = 0;
  return 0;
}
int nvmlDeviceGetCudaComputeCapability(void *handle, int *major, int *minor) {
  *major = 8;
  *minor = of(handle) < 2 ? 0 : 7;
  return 0;
}
int nvmlDeviceGetMaxPcieLinkGeneration(void *handle, unsigned *generation) {
  (void)handle;
  *generation = 4;
  return 0;
}
int nvmlDeviceGetMaxPcieLinkWidth(void *handle, unsigned *width) {
  *width = of(handle) < 2 ? 16 : 8;
  return 0;
}
int nvmlDeviceGetNvLinkState(void *handle, unsigned link, unsigned *active) {
  *active = of(handle) < 2 && link < 12;
  return of(handle) < 2 ? 0 : 3;
}
int nvmlDeviceGetNvLinkVersion(void *handle, unsigned link, unsigned *version) {
  (void)handle;
  (void)link;
  *version = 3;
  return 0;
}
