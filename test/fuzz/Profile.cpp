// Fuzzes profile.json: the reader, writing and reading back, and the times that follow from
// accepted profiles.
#include "Fuzz.h"
#include "SyntheticModel.h"

#include "zorse/Planning/CostModel.h"

#include <cmath>

using namespace zorse;

bool fuzz::readOne(std::string_view bytes) {
  static const bundle::ModelSummary summary = test::makeModel({}).summary;
  static const planning::Cluster cluster = [] {
    return *planning::readCluster(
        "sites: [{name: x}, {name: y}]\nnodes: [{name: n0, site: x, devices: [{name: a, "
        "flops_per_second: 1e9}, {name: t4, type: T4, count: 2}]},"
        "{name: n1, site: x, devices: [{name: b, type: cpu-thread}]}, {name: n2, site: y, devices: "
        "[{name: c, type: V100-16}]}]\n"
        "links: {inter_site: {bandwidth: 1 GB/s}}");
  }();
  Result<planning::Profile> profile = planning::readProfile(std::string(bytes));
  ZORSE_FUZZ_EXPECT(!profile.failed() || !profile.message().empty());
  if (profile.failed())
    return false;
  std::string text = planning::writeProfile(*profile);
  Result<planning::Profile> again = planning::readProfile(text);
  ZORSE_FUZZ_EXPECT(!again.failed() && planning::writeProfile(*again) == text);

  profile->model.clear();
  Result<planning::CostModel> costs = planning::CostModel::make(summary, cluster, &*profile, {});
  ZORSE_FUZZ_EXPECT(!costs.failed());
  auto sound = [](double seconds) { return std::isfinite(seconds) && seconds >= 0; };
  for (uint32_t d = 0; d < cluster.devices.size(); ++d) {
    for (int32_t u = 0; u < summary.units_size(); ++u)
      for (step::UnitTask task :
           {step::UnitTask::Forward, step::UnitTask::Backward, step::UnitTask::InputGradients,
            step::UnitTask::WeightGradients, step::UnitTask::Recompute})
        for (int64_t rows :
             {int64_t(0), int64_t(1), int64_t(3), int64_t(1024), int64_t(1025), int64_t(1) << 31})
          ZORSE_FUZZ_EXPECT(sound(costs->unit(d, u, task, rows)));
    ZORSE_FUZZ_EXPECT(sound(costs->update(d, {1000})) && sound(costs->norm(d, 1000)) &&
                      sound(costs->copy(d, 1000)) && sound(costs->load(d, 1000)));
    for (uint32_t e = 0; e < cluster.devices.size(); ++e) {
      sim::Traffic traffic(costs->network());
      sim::TransferTimes times = traffic.send(d, e, 1e6, 0);
      ZORSE_FUZZ_EXPECT(sound(times.sent) && times.arrived >= times.sent);
    }
  }
  return true;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t maxSize,
                                          unsigned seed) {
  static const std::vector<const char *> words = {
      "\"device\": ",
      "\"devices\": ",
      "\"unit_classes\": ",
      "\"measurements\": ",
      "\"tensor_parallel_size\": ",
      "\"batch_size\": ",
      "\"forward\": ",
      "\"backward\": ",
      "\"input_gradients\": ",
      "\"weight_gradients\": ",
      "\"memory\": ",
      "\"update\": ",
      "\"norm\": ",
      "\"copy\": ",
      "\"load\": ",
      "\"per_element\": ",
      "\"per_byte\": ",
      "\"communication\": ",
      "\"per_message\": ",
      "\"delay\": ",
      "\"fixed\": ",
      "\"links\": ",
      "\"from\": ",
      "\"to\": ",
      "\"bandwidth\": ",
      "\"latency\": ",
      "\"per_flow_bandwidth\": ",
      "\"model\": ",
      "\"a\"",
      "\"T4\"",
      "\"n0\"",
      "\"n2\"",
      "\"embedding\"",
      "1e-9",
      "1e300",
      "null",
      "true",
      "[",
      "]",
      "{",
      "}",
      ", ",
  };
  fuzz::Random random(seed);
  std::string_view text(reinterpret_cast<char *>(data), size);
  return fuzz::put(random() % 4 ? fuzz::mutateJson(text, random)
                                : fuzz::mutateText(text, words, random),
                   data, maxSize);
}
