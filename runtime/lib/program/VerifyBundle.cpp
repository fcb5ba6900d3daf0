// The compiler verifies what it writes; a bundle that comes from elsewhere, or was changed together with its checksums, is verified where it runs.
#include "zorse/Verify/Verify.h"
#include "zorse/runtime/Bundle.h"

using namespace zorse;
using namespace zorse::runtime;

Status zorse::runtime::verifyBundle(const Bundle &bundle, unsigned threads) {
  auto wrong = [&](const std::string &what) {
    return userError(bundle.directory + ": its programs are not those of its plan: " + what + "; compile the model again");
  };
  std::string error;
  std::optional<verify::PlanView> plan = verify::readPlanView(bundle.plan, error);
  if (!plan)
    return wrong("plan.json: " + error);
  std::vector<verify::Finding> findings = verify::verifyPrograms(bundle.summary, bundle.bodies, *plan, bundle.programs, {threads, 1});
  if (findings.empty())
    return Status::success();
  std::string more = findings.size() == 1 ? "" : " (and " + std::to_string(findings.size() - 1) + " more)";
  return wrong(verify::toString(findings.front(), *plan) + more);
}
