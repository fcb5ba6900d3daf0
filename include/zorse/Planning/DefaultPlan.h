// The plan when the user gives none.
#pragma once

#include "zorse/Planning/Cluster.h"
#include "zorse/Step/Plan.h"

namespace zorse::bundle {
class BodyLibrary;
}

namespace zorse::planning {

struct DefaultPlanOptions {
  const bundle::BodyLibrary *bodies = nullptr; ///< as ExpandOptions::bodies: exact memory
  uint32_t stages = 0;        ///< 0: chosen
  int64_t microBatch = 0;     ///< rows of a cell at most; 0: chosen
  step::ScheduleKind schedule = step::ScheduleKind::OneForwardOneBackward; ///< 1f1b or gpipe
};

/// Stages of one or several devices, balanced by cost over the devices' speeds.
///
/// For each number of stages: contiguous groups of devices (in cluster order, and fastest first) and contiguous ranges of units are chosen together so that
/// the slowest stage is fastest; a stage's samples are shared so that its slowest device is fastest. Each node alone and the fastest device alone
/// are tried too, so that no plan is chosen that one device outruns in simulated time. Each choice is expanded and simulated for several sizes of
/// micro-batches; among those that fit in memory the fastest wins, ties to the fewest stages. Devices may stay idle: where there are
/// more than samples or units can use.
///
/// \returns nullopt and an itemised message if no candidate fits.
std::optional<step::Plan> makeDefaultPlan(const bundle::ModelSummary &summary, const Cluster &cluster, int64_t batch, std::string &error,
                                          const DefaultPlanOptions &options = {});

} // namespace zorse::planning
