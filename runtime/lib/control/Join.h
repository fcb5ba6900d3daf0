// Finds the coordinator of a rank's job and joins the job.
#pragma once

#include "Sockets.h"

#include "zorse/runtime/Control.h"

#include <memory>

namespace zorse::control {

struct JoinResult {
  std::unique_ptr<Connection> connection; ///< its reader may already contain frames that follow the
                                          ///< welcome
  JoinAccepted welcome;
  runtime::Endpoint endpoint;
};

/// Tries the endpoints round-robin for joinSeconds. Stops earlier in two cases:
/// - This job's coordinator refuses this rank permanently.
/// - For a while, the program at every endpoint does not know the secret, belongs to another job or
///   speaks another protocol version.
runtime::Result<JoinResult> joinJob(const runtime::MemberOptions &options);

} // namespace zorse::control
