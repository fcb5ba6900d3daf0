// One rank of a job of processes: joins the job, compares hardware, connects to peers, and trains
// its device.
#pragma once

#include "Options.h"

#include "zorse/runtime/Launch.h"

namespace zorse::run {

/// Runs this process as the rank given by `environment`. Returns its exit code, or ends the process
/// if the job fails.
int runRank(const Options &options, const runtime::RankEnvironment &environment);

/// Prints `message` and ends the process.
[[noreturn]] void endProcess(runtime::ErrorKind kind, const std::string &message, int exitCode);

runtime::ControlTimes controlTimes(const Options &options);

} // namespace zorse::run
