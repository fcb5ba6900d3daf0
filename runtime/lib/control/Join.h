// How a rank finds its job's coordinator and is admitted.
#pragma once

#include "Sockets.h"

#include "zorse/runtime/Control.h"

#include <memory>

namespace zorse::control {

struct Admission {
  std::unique_ptr<Connection> connection; ///< its reader may already hold what followed the welcome.
  Welcome welcome;
  runtime::Endpoint endpoint;
};

/// Tries the endpoints in turn until joinSeconds are over. Ends earlier when this job's coordinator refuses this rank for good, or when for a while
/// every endpoint has belonged to somebody who does not know the secret, is another job or speaks another version.
runtime::Result<Admission> joinJob(const runtime::MemberOptions &options);

} // namespace zorse::control
