// Trains the devices of this process: one device or all devices of the bundle.
#pragma once

#include "Options.h"

#include "zorse/runtime/Checkpoint.h"
#include "zorse/runtime/Control.h"
#include "zorse/runtime/Executor.h"
#include "zorse/runtime/ProcessGroup.h"
#include "zorse/runtime/Training.h"

#include <functional>
#include <string>

namespace zorse::run {

class JobOutput;

/// This process among the processes of its job.
struct ProcessContext {
  ProcessContext(runtime::ProcessGroup &group, runtime::StopCoordinator &stopCoordinator)
      : group(group), stopCoordinator(stopCoordinator) {}
  runtime::ProcessGroup &group;
  runtime::StopCoordinator &stopCoordinator;
  runtime::Member *member = nullptr; ///< null: the only process
  JobOutput *output = nullptr; ///< output of the whole job; set on rank 0 or if this is the only
                               ///< process
  bool resume = false;
  runtime::CheckpointOptions::Peers memoryPeers;
  std::string fingerprint;    ///< fingerprint of the training data
  bool reportToAll = false;   ///< some rank has no work and follows the reports
  std::function<void()> pace; ///< TrainingRun.pace of a rank without work
  std::function<runtime::Result<std::vector<runtime::LocalDevice>>(
      const std::vector<double> &shares)>
      makeDevices; ///< argument: fraction of its speed for every device of the bundle
  std::function<void(const runtime::Error &)> failed; ///< ends the process, because functions and
                                                      ///< transfers in progress may never end
};

/// Runs everything from device creation to the last output. `stepsDone` receives the last step
/// done. Does not return after a failure.
runtime::Status trainHere(const Options &options, const runtime::Bundle &bundle,
                          runtime::DataSource &data, ProcessContext &process, uint64_t &stepsDone);

} // namespace zorse::run
