// random-plan SUMMARY DEVICES BATCH SEED OUTPUT: writes a random valid plan of a model (summary.pb
// of a bundle) for the devices d0, d1, ... BATCH is in samples.
#include "RandomPlan.h"

#include "zorse/Summary/Summary.h"

#include <cstdio>
#include <cstdlib>
#include <fstream>

using namespace zorse;

int main(int argc, char **argv) {
  if (argc != 6) {
    fprintf(stderr, "random-plan SUMMARY DEVICES BATCH SEED OUTPUT\n");
    return 2;
  }
  bundle::ModelSummary summary;
  std::ifstream in(argv[1], std::ios::binary);
  if (!in || !summary.ParseFromIstream(&in) || summary.units_size() == 0) {
    fprintf(stderr, "%s: expected the summary of a model\n", argv[1]);
    return 1;
  }
  const long long devices = atoll(argv[2]), batch = atoll(argv[3]) / samplesPerRow(summary);
  if (devices < 1 || devices > 4096 || batch < 1) {
    fprintf(stderr,
            "expected 1 to 4096 devices and a batch of at least one row, found %lld and %s\n",
            devices, argv[3]);
    return 1;
  }
  const step::Plan plan =
      step::randomPlan(summary, batch, uint32_t(devices), strtoull(argv[4], nullptr, 10));
  std::ofstream out(argv[5], std::ios::binary);
  out << step::writePlan(plan, summary);
  return out.flush() ? 0 : 1;
}
