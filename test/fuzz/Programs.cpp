// Fuzzes programs, summary and functions that parse but have arbitrary contents: the verifier,
// which checks all of them, the runtime's own check, and Step's expansion for the summary.
#include "BundleInput.h"
#include "Fuzz.h"

#include "zorse/Planning/Search.h"
#include "zorse/Step/Plan.h"
#include "zorse/Step/StepGraph.h"
#include "zorse/Verify/Verify.h"
#include "zorse/runtime/Bundle.h"

using namespace zorse;

bool fuzz::readOne(std::string_view bytes) {
  BundleParts input;
  runtime::Bundle loaded;
  if (!input.ParseFromArray(bytes.data(), int(bytes.size())) ||
      !loaded.summary.ParseFromString(input.summary()) ||
      !loaded.functions.ParseFromString(input.functions()))
    return false;
  std::vector<bundle::Program> programs(input.programs_size());
  for (int d = 0; d < input.programs_size(); ++d)
    if (!programs[d].ParseFromString(input.programs(d)))
      return false;

  if (isOneIn(4, bytes)) // most mutations change programs, which Step does not read
    if (Result<step::Plan> plan = step::readPlan(input.plan(), loaded.summary);
        !plan.failed() && plan->cells.size() <= 100 && plan->devices.size() <= 16) {
      step::LoweringOptions options;
      (void)step::lowerPlan(loaded.summary, *plan, options);
    }

  bool sound = false;
  if (Result<verify::PlanView> view = verify::readPlanView(input.plan()); !view.failed()) {
    std::vector<verify::Finding> findings =
        verify::verifyPrograms(loaded.summary, loaded.functions, *view, programs);
    for (const verify::Finding &finding : findings)
      ZORSE_FUZZ_EXPECT(!verify::toString(finding, *view).empty());
    sound = findings.empty();
  }

  loaded.directory = "b";
  loaded.batch = 4;
  for (const bundle::Program &program : programs)
    loaded.devices.push_back({program.device_name(), "cpu", 1, 0});
  loaded.programs = std::move(programs);
  (void)runtime::checkPrograms(loaded).failed();
  return sound;
}
