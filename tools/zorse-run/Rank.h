// One rank of a job of processes: joins, compares hardware, connects, trains its device.
#pragma once

#include "Options.h"

#include "zorse/runtime/Launch.h"

namespace zorse::run {

/// Runs this process as the rank that `place` says; returns its exit code, or ends the process when the job fails.
int runRank(const Options &options, const runtime::Place &place);

/// Ends the process with a line for people.
[[noreturn]] void endProcess(runtime::ErrorKind kind, const std::string &message, int exitCode);

runtime::ControlTimes controlTimes(const Options &options);

} // namespace zorse::run
