// verify-scale: how long the verifier takes for a pipeline of STAGES x REPLICAS devices with MICRO micro-batches each.
#include "RealPrograms.h"

#include "zorse/Step/Plan.h"
#include "zorse/Verify/Verify.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>

using namespace zorse;

int main(int argc, char **argv) {
  if (argc < 4) {
    fprintf(stderr, "verify-scale STAGES REPLICAS MICRO [THREADS]\n");
    return 2;
  }
  int stages = atoi(argv[1]), replicas = atoi(argv[2]), micro = atoi(argv[3]);
  test::SyntheticOptions options;
  options.units = stages * 2;
  test::RealCase real;
  real.model = test::makeModel(options);
  step::Plan plan;
  plan.batch = int64_t(replicas) * micro;
  for (int d = 0; d < stages * replicas; ++d) {
    step::PlanDevice device;
    device.name = "d" + std::to_string(d);
    plan.devices.push_back(device);
  }
  for (int s = 0; s < stages; ++s)
    for (int r = 0; r < replicas; ++r)
      for (int m = 0; m < micro; ++m) {
        int64_t sample = int64_t(r) * micro + m;
        plan.cells.push_back({s * 2, s * 2 + 2, sample, sample + 1, uint32_t(s * replicas + r)});
      }
  std::string error;
  auto clock = [] { return std::chrono::steady_clock::now(); };
  auto t0 = clock();
  if (!test::makePrograms(real, plan, error)) {
    fprintf(stderr, "%s\n", error.c_str());
    return 1;
  }
  auto t1 = clock();
  auto findings = verify::verifyPrograms(real.model.summary, real.model.bodies, real.plan, real.programs, {argc > 4 ? unsigned(atoi(argv[4])) : 1u});
  auto t2 = clock();
  size_t entries = 0, slots = 0;
  for (const auto &program : real.programs)
    for (const auto &entry : program.entries()) {
      ++entries;
      for (const auto &call : entry.compute().calls())
        slots += size_t(call.slots_size());
    }
  auto seconds = [](auto a, auto b) { return std::chrono::duration<double>(b - a).count(); };
  printf("%zu devices, %zu entries, %zu slots: expanded and converted in %.2f s, verified in %.2f s, %zu findings\n", real.programs.size(), entries, slots, seconds(t0, t1), seconds(t1, t2),
         findings.size());
  for (const auto &finding : findings)
    printf("%s\n", verify::toString(finding, real.plan).c_str());
  return !findings.empty();
}
