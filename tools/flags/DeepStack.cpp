#include "DeepStack.h"

#include <cstddef>
#include <cstdio>
#include <new>
#include <stdexcept>

#include <pthread.h>
#include <sys/mman.h>

namespace {

struct Call {
  int (*tool)(int, char **);
  int argc;
  char **argv;
  int result;
};

void *run(void *argument) {
  Call &call = *static_cast<Call *>(argument);
  try {
    call.result = call.tool(call.argc, call.argv);
  } catch (const std::bad_alloc &) {
    std::fprintf(stderr, "error: out of memory: the input needs more than is available\n");
    call.result = 1;
  } catch (const std::length_error &) {
    std::fprintf(stderr, "error: the input needs more elements than this machine can address\n");
    call.result = 1;
  }
  return nullptr;
}

} // namespace

int zorse::runOnDeepStack(int (*tool)(int, char **), int argc, char **argv) {
  Call call{tool, argc, argv, 0};
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  for (size_t bytes = size_t(64) << 20; bytes >= size_t(16) << 20; bytes /= 2)
    if (pthread_attr_setstacksize(&attributes, bytes) == 0 &&
        pthread_setattr_default_np(&attributes) == 0)
      break;
  // Smaller if the address space is limited (ulimit -v).
  for (size_t bytes = size_t(64) << 30; bytes >= size_t(64) << 20; bytes /= 2) {
    void *stack = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (stack == MAP_FAILED)
      continue;
    pthread_t thread;
    if (pthread_attr_setstack(&attributes, stack, bytes) == 0 &&
        pthread_create(&thread, &attributes, run, &call) == 0) {
      pthread_join(thread, nullptr);
      ::munmap(stack, bytes);
      pthread_attr_destroy(&attributes);
      return call.result;
    }
    ::munmap(stack, bytes);
  }
  pthread_attr_destroy(&attributes);
  run(&call);
  return call.result;
}
