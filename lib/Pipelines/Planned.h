// What passes behind zorse-lower-bodies read in the module beside functions and targets.
#pragma once

#include "zorse/Bundle/Manifest.h"
#include "zorse/Dialect/Zorse/Resources.h"
#include "zorse/Planning/CostModel.h"
#include "zorse/Step/Plan.h"

#include "mlir/IR/BuiltinOps.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace zorse::pipelines {

inline constexpr llvm::StringLiteral kSummaryAttr = "zorse.summary"; ///< bytes of the ModelSummary, with bodies and work on GPUs

/// Programs by device, bytes each; and those of the same step by way of the host, where GPUs exchange directly: else there are none.
inline constexpr llvm::StringLiteral kProgramsAttr = "zorse.programs", kStagedAttr = "zorse.staged";
std::vector<std::string> programsOf(mlir::ModuleOp module, llvm::StringRef attribute);

/// The cluster of a module that has one. Messages begin with the file's path.
Result<planning::Cluster> clusterOf(mlir::ModuleOp module);

/// What a plan is made of and checked against.
struct PlanInputs {
  bundle::ModelSummary summary;
  bundle::BodyLibrary bodies; ///< of the first target: those that programs, plan and verifier know
  std::string clusterFile;
  planning::Cluster cluster; ///< its devices as fast as the precision makes them, and with the memory that the profile has found
  std::optional<planning::Profile> profile;
  std::vector<std::string> assumptions; ///< about these, for people
};

/// Reads a module behind zorse-lower-bodies. Messages are for the user.
Result<PlanInputs> readPlanInputs(mlir::ModuleOp module);

/// A plan, with what the cluster says of its devices.
Result<step::Plan> readPlan(const FileText &file, const PlanInputs &inputs);

/// The plan of a module behind zorse-plan, and what follows from it: an analysis.
struct Planned : PlanInputs {
  explicit Planned(mlir::Operation *module);

  Status status;                                    ///< for the user; success: all of this is there
  std::string file;                                 ///< that messages name: the plan's, or the cluster's where a plan was searched
  step::Plan plan;                                  ///< with what the cluster says of its devices
  std::vector<bundle::BundleDevice> devices;        ///< in the order of the plan, exchanging directly with nobody
  std::vector<int32_t> direct;                      ///< likewise: planning::directGroups
  std::shared_ptr<const planning::CostModel> costs; ///< of these devices
};

} // namespace zorse::pipelines
