// Reads a launcher's variables with errors that name variable, value, what was expected and the remedy.
#pragma once

#include "zorse/runtime/Launch.h"

#include <initializer_list>

namespace zorse::runtime::launching {

/// Ranks of a job at most: a number beyond it is a mistake, not a job.
inline constexpr uint64_t kMaxRanks = uint64_t(1) << 20;
/// Ports that one coordinator may take: the next free one where the first is taken.
inline constexpr uint32_t kPorts = 8;
/// First port of coordinators whose launcher tells an address and no port.
inline constexpr uint16_t kDefaultPort = 29600;

class Variables {
public:
  explicit Variables(const Environment &environment) : environment_(environment) {}

  /// Set and not empty.
  bool has(const std::string &name) const;
  /// "" where it is not set.
  const std::string &text(const std::string &name) const;
  /// A whole number in [least, most].
  Result<uint64_t> number(const std::string &name, uint64_t least, uint64_t most) const;
  /// The first of the names that is set; "" if none is.
  std::string firstOf(std::initializer_list<const char *> names) const;

  /// A family is all there or not used. Names every member that is missing when some is not.
  Status complete(const std::string &family, std::initializer_list<const char *> names) const;
  /// Rank < world, for the variables named; both read as numbers.
  Status rankAndWorld(const std::string &rankName, const std::string &worldName, uint32_t &rank, uint32_t &world) const;

private:
  const Environment &environment_;
};

/// "NAME=value"
std::string shown(const std::string &name, const std::string &value);

/// Host and kPorts ports from the first on, as far as there are so many.
std::vector<Endpoint> portsFrom(const std::string &host, uint32_t first);
/// Ports of a job whose launcher tells none: the same for all its ranks, seldom another job's. Below the range from which the system takes ports of
/// outgoing connections.
uint32_t portOfJob(const std::string &job);

} // namespace zorse::runtime::launching
