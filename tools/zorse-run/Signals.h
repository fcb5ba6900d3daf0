// SIGINT, SIGTERM and SIGUSR1, handed from their handlers to a thread.
#pragma once

#include <functional>

namespace zorse::run {

/// Ignores SIGPIPE. From now on the first SIGINT, SIGTERM or SIGUSR1 calls `first` in a thread of its own; a second SIGINT or SIGTERM ends the
/// process with exit code 130. Once per process. (Blocking signals and waiting for them would miss threads that libraries start before main.)
void onSignals(std::function<void()> first);

} // namespace zorse::run
