#include "HostList.h"
#include "Variables.h"

#include <algorithm>
#include <optional>

using namespace zorse::runtime;
using namespace zorse::runtime::launching;

namespace {

bool digits(const std::string &text) {
  return !text.empty() && text.size() <= 9 &&
         text.find_first_not_of("0123456789") == std::string::npos;
}

/// "1-3,07" → "1", "2", "3", "07". nullopt if malformed or too long.
std::optional<std::vector<std::string>> expandBracket(const std::string &inside) {
  std::vector<std::string> numbers;
  for (size_t begin = 0; begin <= inside.size();) {
    size_t end = std::min(inside.find(',', begin), inside.size());
    std::string range = inside.substr(begin, end - begin);
    begin = end + 1;
    size_t dash = range.find('-');
    std::string first = range.substr(0, dash),
                last = dash == std::string::npos ? first : range.substr(dash + 1);
    if (!digits(first) || !digits(last))
      return std::nullopt;
    uint64_t from = std::stoull(first), to = std::stoull(last);
    if (to < from || to - from >= kMaxHosts || numbers.size() + (to - from) >= kMaxHosts)
      return std::nullopt;
    for (uint64_t n = from; n <= to; ++n) {
      std::string number = std::to_string(n);
      numbers.push_back(
          std::string(first.size() > number.size() ? first.size() - number.size() : 0, '0') +
          number);
    }
  }
  return numbers;
}

/// Expands one name, with or without brackets. nullopt if malformed or too long.
std::optional<std::vector<std::string>> expandName(const std::string &name) {
  std::vector<std::string> hosts = {""};
  for (size_t at = 0; at < name.size();) {
    size_t open = std::min(name.find('[', at), name.size());
    std::string plain = name.substr(at, open - at);
    if (plain.find_first_of("] \t\n") != std::string::npos)
      return std::nullopt;
    std::vector<std::string> endings = {""};
    at = open;
    if (open < name.size()) {
      size_t close = name.find(']', open);
      if (close == std::string::npos)
        return std::nullopt;
      std::optional<std::vector<std::string>> numbers =
          expandBracket(name.substr(open + 1, close - open - 1));
      if (!numbers)
        return std::nullopt;
      endings = std::move(*numbers);
      at = close + 1;
    }
    if (hosts.size() * endings.size() > kMaxHosts)
      return std::nullopt;
    std::vector<std::string> longer;
    longer.reserve(hosts.size() * endings.size());
    for (const std::string &host : hosts)
      for (const std::string &ending : endings)
        longer.push_back(host + plain + ending);
    hosts = std::move(longer);
  }
  if (hosts.front().empty())
    return std::nullopt;
  return hosts;
}

} // namespace

Result<std::vector<std::string>> launching::expandHostList(const std::string &name,
                                                           const std::string &list) {
  std::vector<std::string> hosts;
  for (size_t begin = 0; begin <= list.size();) {
    // Commas within brackets do not separate names.
    size_t end = begin, depth = 0;
    for (; end < list.size() && (list[end] != ',' || depth > 0); ++end)
      depth = list[end] == '[' ? depth + 1 : list[end] == ']' && depth > 0 ? depth - 1 : depth;
    std::optional<std::vector<std::string>> more = expandName(list.substr(begin, end - begin));
    if (!more || hosts.size() + more->size() > kMaxHosts)
      return userError(
          shown(name, list) +
          ": expects a list of hosts as Slurm writes it, for example n[1-3,7],gpu01, of at most " +
          std::to_string(kMaxHosts) + " hosts" +
          (more ? ""
                : "; '" + list.substr(begin, std::min<size_t>(end - begin, 60)) + "' is not one") +
          ". Or set ZORSE_STORE=host:port to the coordinator's address");
    hosts.insert(hosts.end(), more->begin(), more->end());
    begin = end + 1;
  }
  return hosts;
}
