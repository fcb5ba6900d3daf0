// Trains the devices of this process, which may be all of the bundle's or one of them.
#pragma once

#include "Options.h"

#include "zorse/runtime/Control.h"
#include "zorse/runtime/Executor.h"
#include "zorse/runtime/Group.h"
#include "zorse/runtime/Training.h"

#include <functional>
#include <string>

namespace zorse::run {

class JobOutput;

/// This process among those of its job.
struct Process {
  Process(runtime::Group &group, runtime::StepGate &gate) : group(group), gate(gate) {}
  runtime::Group &group;
  runtime::StepGate &gate;
  runtime::Member *member = nullptr; ///< null: alone
  JobOutput *output = nullptr;       ///< where what belongs to the whole job goes: this process is rank 0, or alone.
  bool resume = false;
  std::string fingerprint;    ///< of the training data
  bool reportToAll = false;   ///< some rank has nothing to do and follows the reports.
  std::function<void()> pace; ///< of such a rank: TrainingRun.pace
  std::function<runtime::Result<std::vector<runtime::LocalDevice>>(const std::vector<double> &shares)>
      makeDevices;                                    ///< shares of their speed, by device of the bundle
  std::function<void(const runtime::Error &)> failed; ///< ends the process: bodies and transfers that are under way may never end.
};

/// From the devices to the last output. `stepsDone` is the last step done. Does not return after a failure.
runtime::Status trainHere(const Options &options, const runtime::Bundle &bundle, runtime::DataSource &data, Process &process, uint64_t &stepsDone);

} // namespace zorse::run
