// What zorse-plan reads before it plans: cluster, profile, model and a given plan.
#pragma once

#include "LoadModel.h"
#include "Options.h"

#include "zorse/Planning/Profile.h"
#include "zorse/Planning/Search.h"
#include "zorse/Step/Plan.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace zorse::plan {

/// Prints an error. Lines that begin with two spaces continue it. \returns 1
int fail(const std::string &message);

struct GivenPlan {
  step::Plan plan;
  std::unique_ptr<planning::DividedModel> divided; ///< as the plan's groups divide the model;
                                                   ///< nullptr: the plan has none
};

/// Reads a plan, and divides the model as its groups do. \param cluster  devices that the plan does
/// not list get no work; costs and memory are taken from it. Null: those of the plan
Result<GivenPlan> readGivenPlan(const std::string &path, const LoadedModel &model,
                                const planning::Cluster *cluster);

/// The inputs of planning.
struct Inputs {
  std::optional<planning::Cluster> cluster;
  std::optional<planning::Profile> profile;
  std::optional<step::Plan> plan; ///< given by the user or found by the search
  LoadedModel model;
  std::unique_ptr<planning::DividedModel> divided; ///< as the given plan's groups divide it
  std::vector<std::string> assumptions;

  const planning::Cluster *clusterIfAny() const { return cluster ? &*cluster : nullptr; }
  const planning::Profile *profileIfAny() const { return profile ? &*profile : nullptr; }
};

/// Reads all inputs. \param o  o.batch is in rows afterwards
Status readInputs(Options &o, Inputs &inputs);

/// Applies the options that hold for every plan of a problem, also to a given plan. What they do
/// not say holds as in that plan.
Status applyPlanOptions(const Options &o, planning::Problem &problem,
                        std::optional<step::Plan> &plan);

/// Options of the search for a plan on the cluster. An error names a device that does not exist.
Result<planning::SearchOptions> searchOptions(const Options &o, const planning::Cluster &cluster);

} // namespace zorse::plan
