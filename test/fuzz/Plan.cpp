// Fuzzes plan.json: Step's reader, the expansion of accepted plans to programs, and the verifier's
// own reader.
#include "Fuzz.h"
#include "SyntheticModel.h"

#include "zorse/Planning/Report.h"
#include "zorse/Step/Plan.h"
#include "zorse/Step/StepGraph.h"
#include "zorse/Verify/PlanView.h"

using namespace zorse;

bool fuzz::readOne(std::string_view bytes) {
  static const bundle::ModelSummary summary = test::makeModel({}).summary;
  Result<verify::PlanView> view = verify::readPlanView(bytes);
  ZORSE_FUZZ_EXPECT(!view.failed() || !view.message().empty());

  Result<step::Plan> plan = step::readPlan(std::string(bytes), summary);
  ZORSE_FUZZ_EXPECT(!plan.failed() || !plan.message().empty());
  if (plan.failed() || step::validatePlan(*plan, summary).failed())
    return false;
  if (plan->cells.size() > 200 || plan->devices.size() > 64) // expanding larger plans is too slow
    return true;

  // Both readers read a written plan back as the same plan.
  std::string written = step::writePlan(*plan, summary);
  Result<step::Plan> again = step::readPlan(written, summary);
  ZORSE_FUZZ_EXPECT(!again.failed() && step::writePlan(*again, summary) == written);
  view = verify::readPlanView(written);
  ZORSE_FUZZ_EXPECT(!view.failed() && view->cells.size() == plan->cells.size());

  if (Result<step::StepGraph> graph = step::lowerPlan(summary, *plan); !graph.failed()) {
    ZORSE_FUZZ_EXPECT(graph->devices.size() == plan->devices.size());
    touch(planning::drawPlan(*plan, summary.units_size()).data(), 1);
  } else {
    ZORSE_FUZZ_EXPECT(!graph.message().empty());
  }
  return true;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t maxSize,
                                          unsigned seed) {
  fuzz::Random random(seed);
  static const std::vector<const char *> words = {
      "\"global_batch_size\": ",
      "\"devices\": ",
      "\"cells\": ",
      "\"stages\": ",
      "\"pipelines\": ",
      "\"units\": ",
      "\"samples\": ",
      "\"device\": ",
      "\"micro_batch_size\": ",
      "\"share\": ",
      "\"fraction\": ",
      "\"elements\": ",
      "\"state\": ",
      "\"groups\": ",
      "\"owners\": ",
      "\"group\": ",
      "\"*\"",
      "\"default_sharding\": ",
      "\"equal\"",
      "\"first\"",
      "\"schedule\": ",
      "\"order\": ",
      "\"gpipe\"",
      "\"1f1b\"",
      "\"durations\": ",
      "\"forward\": ",
      "\"backward\": ",
      "\"links\": ",
      "\"intra_node\": ",
      "\"bandwidth\": ",
      "\"F0\"",
      "\"B0\"",
      "[",
      "]",
      "{",
      "}",
      ", ",
      "null",
      "true",
      "1e308",
      "\"a\"",
      "\"offload\": ",
      "\"optimizer_states\": ",
      "\"flops_per_second\": ",
      "\"memory\": ",
      "\"node\": ",
      "\"activations\": ",
      "\"keep\"",
  };
  std::string_view text(reinterpret_cast<char *>(data), size);
  return fuzz::put(random() % 4 ? fuzz::mutateJson(text, random)
                                : fuzz::mutateText(text, words, random),
                   data, maxSize);
}
