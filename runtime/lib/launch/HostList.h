// Expands Slurm's host lists: "n[1-3,07-09]", "a,b[1-2]", "rack[0-1]node[1-2]".
#pragma once

#include "zorse/runtime/Status.h"

#include <string>
#include <vector>

namespace zorse::runtime::launching {

/// Returns the hosts in Slurm's order. Numbers keep the width of the first number of the range:
/// [08-10] is 08, 09, 10. Several brackets in a name are multiplied, the last one varies fastest.
/// Returns an error if the list is malformed or has more than kMaxHosts hosts.
Result<std::vector<std::string>> expandHostList(const std::string &name, const std::string &list);

inline constexpr size_t kMaxHosts = 65536;

} // namespace zorse::runtime::launching
