// program-hashes: prints one line per random plan, "SEED PROGRAMS TIMES". PROGRAMS is a hash of the
// serialized programs. TIMES is a hash of the results that planning uses: step time, and per device
// the compute seconds and peak memory (hashed as bits). Two versions of the compiler that print the
// same lines write the same programs:
//
//   program-hashes --plans=3000 > before;  ...;  program-hashes --plans=3000 | diff before -
#include "NumberOption.h"
#include "RandomCases.h"
#include "RealPrograms.h"

#include "zorse/Step/StepGraph.h"

#include <atomic>
#include <cstdio>
#include <thread>
#include <vector>

using namespace zorse;

namespace {

/// FNV-1a.
struct Hash {
  uint64_t value = 0xcbf29ce484222325ull;
  void add(const void *data, size_t bytes) {
    for (size_t i = 0; i < bytes; ++i)
      value = (value ^ static_cast<const uint8_t *>(data)[i]) * 0x100000001b3ull;
  }
  template <typename T> void add(const T &number) { add(&number, sizeof number); }
};

std::string line(uint64_t seed, int largest) {
  test::RandomCase drawn =
      test::randomCase(seed, nullptr, seed % 2 ? 1 : 1 + int(seed / 2 % uint64_t(largest)));
  test::RealCase real;
  real.model = drawn.model;
  if (Status status = test::makePrograms(real, drawn.plan); status.failed())
    return std::to_string(seed) + " refused: " + status.message();
  Hash programs, times;
  for (const auto &program : real.programs) {
    const std::string bytes = program.SerializeAsString();
    programs.add(bytes.data(), bytes.size());
  }
  step::TimeOptions options;
  options.functions = &real.model.functions;
  if (auto found = step::timeStep(real.model.summary, drawn.plan, options); !found.failed()) {
    times.add(found->stepTime);
    for (const auto &device : found->devices) {
      times.add(device.busy);
      times.add(device.memory.peakLiveBytes);
    }
  }
  char text[80];
  std::snprintf(text, sizeof text, "%llu %016llx %016llx", static_cast<unsigned long long>(seed),
                static_cast<unsigned long long>(programs.value),
                static_cast<unsigned long long>(times.value));
  return text;
}

} // namespace

int main(int argc, char **argv) {
  uint64_t plans = 1000, first = 0;
  int largest = 4;
  unsigned threads = std::max(1u, std::thread::hardware_concurrency());
  for (int i = 1; i < argc; ++i) {
    auto number = [&](const char *name, auto &target) {
      return test::numberOption(argv[i], name, target);
    };
    if (number("--plans", plans) || number("--first", first) || number("--largest", largest) ||
        number("--threads", threads))
      continue;
    std::fprintf(stderr,
                 "program-hashes [--plans=N] [--first=SEED] [--largest=FACTOR] [--threads=N]\n");
    return 2;
  }
  std::vector<std::string> lines(plans);
  std::atomic<uint64_t> next{0};
  auto work = [&] {
    for (uint64_t index; (index = next++) < plans;)
      lines[index] = line(first + index, largest);
  };
  std::vector<std::thread> workers;
  for (unsigned t = 1; t < threads; ++t)
    workers.emplace_back(work);
  work();
  for (auto &worker : workers)
    worker.join();
  for (const std::string &text : lines)
    std::printf("%s\n", text.c_str());
}
