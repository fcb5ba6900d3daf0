// Programs, summary and bodies that parse but say anything: the verifier, which trusts none of them, the runtime's own check, and Step's expansion of the summary.
#include "BundleInput.h"
#include "Fuzz.h"

#include "zorse/Planning/DefaultPlan.h"
#include "zorse/Step/Plan.h"
#include "zorse/Step/StepGraph.h"
#include "zorse/Verify/Verify.h"
#include "zorse/runtime/Bundle.h"

using namespace zorse;

bool fuzz::readOne(std::string_view bytes) {
  BundleInput input;
  if (!input.ParseFromArray(bytes.data(), int(bytes.size())))
    return false;
  std::string error;
  if (std::optional<step::Plan> plan = step::readPlan(input.plan(), input.summary(), error); plan && plan->cells.size() <= 100 && plan->devices.size() <= 16) {
    step::ExpandOptions options;
    (void)step::expandPlan(input.summary(), *plan, error, options);
  }

  bool sound = false;
  std::vector<bundle::Program> programs(input.programs_size());
  for (int d = 0; d < input.programs_size(); ++d)
    programs[d].Swap(input.mutable_programs(d));
  if (std::optional<verify::PlanView> view = verify::readPlanView(input.plan(), error)) {
    std::vector<verify::Finding> findings = verify::verifyPrograms(input.summary(), input.bodies(), *view, programs);
    for (const verify::Finding &finding : findings)
      ZORSE_FUZZ_EXPECT(!verify::toString(finding, *view).empty());
    sound = findings.empty();
  }

  runtime::Bundle loaded;
  loaded.directory = "b";
  loaded.batch = 4;
  for (const bundle::Program &program : programs)
    loaded.devices.push_back({program.device_name(), "cpu", 1, 0});
  loaded.summary.Swap(input.mutable_summary());
  loaded.bodies.Swap(input.mutable_bodies());
  loaded.programs = std::move(programs);
  (void)runtime::checkPrograms(loaded).failed();
  return sound;
}
