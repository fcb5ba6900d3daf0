// Data that passes after zorse-lower-functions read from the module, in addition to functions and
// targets.
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

/// Serialized ModelSummary, with compiled functions and GPU work.
inline constexpr llvm::StringLiteral kSummaryAttr = "zorse.summary";

/// Serialized programs per device; and the programs of the same step staged through host memory, if
/// GPUs exchange data directly, else none.
inline constexpr llvm::StringLiteral kProgramsAttr = "zorse.programs", kStagedAttr = "zorse.staged";
std::vector<std::string> programsOf(mlir::ModuleOp module, llvm::StringRef attribute);

/// Returns the cluster of a module. Messages begin with the file's path.
Result<planning::Cluster> clusterOf(mlir::ModuleOp module);

/// Inputs from which a plan is made and against which it is checked.
struct PlanInputs {
  bundle::ModelSummary summary;
  bundle::FunctionLibrary library; ///< of the first target; programs, plan and verifier use them
  std::string clusterFile;
  planning::Cluster cluster; ///< with the speeds of the precision and the memory that the profile
                             ///< found
  std::optional<planning::Profile> profile;
  std::vector<std::string> assumptions; ///< human-readable assumptions about these
};

/// Reads a module after zorse-lower-functions. Messages are for the user.
Result<PlanInputs> readPlanInputs(mlir::ModuleOp module);

/// Reads a plan and completes its devices from the cluster.
Result<step::Plan> readPlan(const FileText &file, const PlanInputs &inputs);

/// Analysis: the plan of a module after zorse-plan, and data derived from it.
struct Planned : PlanInputs {
  explicit Planned(mlir::Operation *module);

  Status status;    ///< message for the user; success: all members are valid
  std::string file; ///< file that messages name: the plan's, or the cluster's if the plan was
                    ///< searched
  step::Plan plan;  ///< with devices completed from the cluster
  std::vector<bundle::BundleDevice> devices; ///< in the order of the plan, without direct peers
  std::vector<int32_t> d2dGroups;            ///< in the order of the plan: planning::d2dGroups
  std::shared_ptr<const planning::CostModel> costs; ///< costs of these devices
};

} // namespace zorse::pipelines
