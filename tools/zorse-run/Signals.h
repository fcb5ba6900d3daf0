// Passes SIGINT, SIGTERM and SIGUSR1 from their handlers to a thread.
#pragma once

#include <functional>

namespace zorse::run {

/// Ignores SIGPIPE and installs signal handlers. The first SIGINT, SIGTERM or SIGUSR1 calls `first`
/// with its number in a separate thread; a second SIGINT or SIGTERM ends the process with exit code
/// 130. Call once per process. (Blocking the signals and waiting for them would miss threads that
/// libraries start before main.)
void onSignals(std::function<void(int signal)> first);

} // namespace zorse::run
