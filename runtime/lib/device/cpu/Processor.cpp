#include "Processor.h"

std::string zorse::runtime::cpuHere() {
#if defined(__x86_64__)
  if (!__builtin_cpu_supports("sse4.2"))
    return "x86-64";
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") ||
      !__builtin_cpu_supports("bmi2"))
    return "x86-64-v2";
  bool wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
              __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
              __builtin_cpu_supports("avx512vl");
  return wide ? "x86-64-v4" : "x86-64-v3";
#elif defined(__aarch64__)
  return "aarch64";
#else
  return "unknown";
#endif
}
