// The compiler verifies its output. A bundle from another machine, or one that was changed together
// with its checksums, is verified where it runs.
#include "zorse/Bundle/DeviceKinds.h"
#include "zorse/Verify/Verify.h"
#include "zorse/runtime/Bundle.h"

using namespace zorse;
using namespace zorse::runtime;

Status zorse::runtime::verifyBundle(const Bundle &bundle, unsigned threads) {
  auto wrong = [&](const std::string &what) {
    return userError(bundle.directory + ": its programs are not those of its plan: " + what +
                     "; compile the model again");
  };
  Result<verify::PlanView> plan = verify::readPlanView(bundle.plan);
  if (plan.failed())
    return wrong("plan.json: " + plan.message());
  verify::VerifyOptions options{threads, 1, {}, {}};
  for (const BundleDevice &device : bundle.devices) {
    options.hostStaged.push_back(deviceKindOf(device.kind).usesHostStaging());
    options.d2dGroups.push_back(deviceKindOf(device.kind).deviceToDevice ? device.d2dGroup : -1);
  }
  std::vector<verify::Finding> findings =
      verify::verifyPrograms(bundle.summary, bundle.functions, *plan, bundle.programs, options);
  if (findings.empty() && !bundle.hostStaged.empty()) {
    options.d2dGroups.clear(); // these programs have no direct transfers
    findings =
        verify::verifyPrograms(bundle.summary, bundle.functions, *plan, bundle.hostStaged, options);
  }
  if (findings.empty())
    return Status::success();
  std::string more =
      findings.size() == 1 ? "" : " (and " + std::to_string(findings.size() - 1) + " more)";
  return wrong(verify::toString(findings.front(), *plan) + more);
}
