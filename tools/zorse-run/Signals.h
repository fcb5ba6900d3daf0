// SIGINT and SIGTERM, handed from their handlers to a thread.
#pragma once

#include <functional>

namespace zorse::run {

/// Ignores SIGPIPE. From now on the first SIGINT or SIGTERM calls `first` in a thread of its own; the second ends the process with exit code 130.
/// Once per process. (Blocking signals and waiting for them would miss threads that libraries start before main.)
void onSignals(std::function<void()> first);

} // namespace zorse::run
