// Mutual authentication of the two ends of a connection. First, each end proves that it knows the
// job's secret. Second, both confirm the same job, generation, rank and world. A MAC covers both
// nonces and the sender's role, so that an earlier conversation or an end's own messages cannot be
// replayed.
#pragma once

#include "Frames.h"

#include <string>
#include <string_view>

namespace zorse::control {

struct Nonces {
  std::string member, coordinator;
};

/// Random bytes from the kernel's generator.
std::string randomBytes(size_t bytes = kNonceBytes);

std::string hmacSha256(const std::string &secret, std::string_view text);
/// Compares in constant time.
bool equalMacs(const std::string &a, const std::string &b);

std::string macOfSecret(const std::string &secret, Role sender, const Nonces &nonces);
std::string macOfJoin(const std::string &secret, const Nonces &nonces, const Join &join);
std::string macOfWelcome(const std::string &secret, const Nonces &nonces,
                         const JoinAccepted &welcome);

} // namespace zorse::control
