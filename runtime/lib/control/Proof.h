// What the two ends of a connection prove to each other: that they know the job's secret, and (second step) that they mean the same job, generation,
// rank and world. A MAC covers both nonces and the sender's role, so that neither an earlier conversation nor one's own words can be played back.
#pragma once

#include "Frames.h"

#include <string>
#include <string_view>

namespace zorse::control {

struct Nonces {
  std::string member, coordinator;
};

/// kNonceBytes from the kernel's generator.
std::string randomBytes(size_t bytes = kNonceBytes);

std::string hmacSha256(const std::string &secret, std::string_view text);
/// In a time that does not depend on where they differ.
bool equalMacs(const std::string &a, const std::string &b);

std::string macOfSecret(const std::string &secret, Role sender, const Nonces &nonces);
std::string macOfJoin(const std::string &secret, const Nonces &nonces, const Join &join);
std::string macOfWelcome(const std::string &secret, const Nonces &nonces, const Welcome &welcome);

} // namespace zorse::control
