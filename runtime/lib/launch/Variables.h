// Reads a launcher's environment variables. Errors name the variable, its value, the expected value
// and how to fix it.
#pragma once

#include "zorse/runtime/Launch.h"

#include <initializer_list>

namespace zorse::runtime::launching {

/// Maximum number of ranks of a job. A larger number is refused as a mistake.
inline constexpr uint64_t kMaxRanks = uint64_t(1) << 20;
/// Number of ports that one coordinator may try, starting with the first.
inline constexpr uint32_t kPorts = 8;
/// First port of the coordinator if the launcher specifies an address but no port.
inline constexpr uint16_t kDefaultPort = 29600;

class Variables {
public:
  explicit Variables(const Environment &environment) : environment_(environment) {}

  /// Whether the variable is set and not empty.
  bool has(const std::string &name) const;
  /// The variable's value, or "" if it is not set.
  const std::string &text(const std::string &name) const;
  /// An integer in [least, most].
  Result<uint64_t> number(const std::string &name, uint64_t min, uint64_t max) const;
  /// The first of the names that is set, or "".
  std::string firstOf(std::initializer_list<const char *> names) const;

  /// Checks that either all variables of a family are set or none. The error names every missing
  /// one.
  Status complete(const std::string &family, std::initializer_list<const char *> names) const;
  /// Reads both variables as numbers and checks rank < world.
  Status rankAndWorld(const std::string &rankName, const std::string &worldSizeName, uint32_t &rank,
                      uint32_t &worldSize) const;

private:
  const Environment &environment_;
};

/// "NAME=value"
std::string shown(const std::string &name, const std::string &value);

/// Endpoints of kPorts consecutive ports of a host, starting with `first`; fewer at the end of the
/// port range.
std::vector<Endpoint> portsFrom(const std::string &host, uint32_t first);
/// First port of a job whose launcher specifies none: equal for all ranks of the job, rarely that
/// of another job. It is below the system's range of ports for outgoing connections.
uint32_t portOfJob(const std::string &job);

} // namespace zorse::runtime::launching
