// The plan of a compilation: the user's or a default one, with what the cluster says about its devices.
#pragma once

#include "zorse/Bundle/BundleWriter.h"
#include "zorse/Planning/CostModel.h"
#include "zorse/Step/Plan.h"

#include <memory>
#include <string>
#include <vector>

namespace zorse::pipelines {

struct PlanOutcome {
  step::Plan plan;
  std::vector<bundle::BundleDevice> devices;        ///< in the order of the plan
  std::vector<std::string> architectures;           ///< of these devices, as the cluster file says; empty: the compiler's
  std::vector<int32_t> direct;                      ///< likewise: planning::directGroups
  std::string cluster;                              ///< text of the file
  std::vector<std::string> assumptions;             ///< about memory that a profile knows of, for people
  std::shared_ptr<const planning::CostModel> costs; ///< of the plan's devices
};

/// What is wrong with running on these devices: kinds that there is no driver and no code for. Empty if nothing.
std::string withoutDriver(const std::vector<bundle::BundleDevice> &devices);
/// The same of the devices of a cluster file, before anything is planned; a file that cannot be read is for makePlan to report.
std::string withoutDriver(const std::string &clusterFile);

/// Why code cannot be made for some device of a cluster file; "": it can.
std::string withoutArchitecture(const std::string &clusterFile);

/// Architectures that the devices of a cluster file ask for, each once; "" where some leave it to the compiler. Of a file that cannot be read: that
/// alone.
std::vector<std::string> architecturesOf(const std::string &clusterFile);

/// Most terms that sums of GPUs of a cluster file need, which exchange directly (codegen::appendBuiltinBodies); 0: there are none.
uint32_t directTerms(const std::string &clusterFile);

/// Reads the cluster and the plan (or makes one, counting the memory these bodies need) and checks them against the model. Errors name the file.
Result<PlanOutcome> makePlan(const std::string &clusterFile, const std::string &planFile, const std::vector<std::string> &profiles, int64_t batch,
                             const bundle::ModelSummary &summary, const bundle::BodyLibrary &bodies);

} // namespace zorse::pipelines
