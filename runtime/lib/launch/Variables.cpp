#include "Variables.h"

#include <unistd.h>

using namespace zorse::runtime;
using namespace zorse::runtime::launching;

Environment zorse::runtime::currentEnvironment() {
  Environment environment;
  for (char **entry = environ; entry && *entry; ++entry) {
    std::string text = *entry;
    size_t equals = text.find('=');
    if (equals != std::string::npos && equals > 0)
      environment.emplace(text.substr(0, equals),
                          text.substr(equals + 1)); // keeps the first of equal names, like getenv
  }
  return environment;
}

std::string launching::shown(const std::string &name, const std::string &value) {
  return name + "=" + (value.size() > 100 ? value.substr(0, 100) + "..." : value);
}

bool Variables::has(const std::string &name) const { return !text(name).empty(); }

const std::string &Variables::text(const std::string &name) const {
  static const std::string none;
  auto found = environment_.find(name);
  return found == environment_.end() ? none : found->second;
}

std::string Variables::firstOf(std::initializer_list<const char *> names) const {
  for (const char *name : names)
    if (has(name))
      return name;
  return "";
}

Result<uint64_t> Variables::number(const std::string &name, uint64_t min, uint64_t max) const {
  const std::string &value = text(name);
  uint64_t number = 0;
  bool good = !value.empty() && value.size() <= 18;
  for (char c : value) {
    good = good && c >= '0' && c <= '9';
    number = good ? number * 10 + uint64_t(c - '0') : 0;
  }
  if (!good || number < min || number > max)
    return userError(
        shown(name, value) + ": expects a whole number from " + std::to_string(min) + " to " +
        std::to_string(max) +
        ". Correct it where the job is launched, or unset it to run without a launcher");
  return number;
}

Status Variables::complete(const std::string &family,
                           std::initializer_list<const char *> names) const {
  std::string there, missing, all;
  for (const char *name : names) {
    (has(name) ? there : missing) += ((has(name) ? there : missing).empty() ? "" : ", ") +
                                     (has(name) ? shown(name, text(name)) : std::string(name));
    all += (all.empty() ? "" : ", ") + std::string(name);
  }
  if (missing.empty())
    return Status::success();
  return userError(
      family + ": " + there +
      (there.find(',') == std::string::npos ? " is set, but " : " are set, but ") + missing +
      (missing.find(',') == std::string::npos ? " is not" : " are not") + "; expects all of " +
      all +
      ". Set what is missing, or unset the others (ZORSE_LAUNCHER=none ignores every launcher)");
}

Status Variables::rankAndWorld(const std::string &rankName, const std::string &worldSizeName,
                               uint32_t &rank, uint32_t &worldSize) const {
  Result<uint64_t> size = number(worldSizeName, 1, kMaxRanks);
  if (size.failed())
    return size.error();
  Result<uint64_t> place = number(rankName, 0, kMaxRanks - 1);
  if (place.failed())
    return place.error();
  if (*place >= *size)
    return userError(
        shown(rankName, text(rankName)) + ": expects less than " +
        shown(worldSizeName, text(worldSizeName)) +
        ", as ranks count from 0. Correct the one that is wrong where the job is launched");
  rank = uint32_t(*place);
  worldSize = uint32_t(*size);
  return Status::success();
}

std::vector<Endpoint> launching::portsFrom(const std::string &host, uint32_t first) {
  std::vector<Endpoint> endpoints;
  for (uint32_t port = first; port < first + kPorts && port <= 65535; ++port)
    endpoints.push_back({host, uint16_t(port)});
  return endpoints;
}

uint32_t launching::portOfJob(const std::string &job) {
  uint64_t hash = 0xcbf29ce484222325; // FNV-1a
  for (char c : job)
    hash = (hash ^ uint8_t(c)) * 0x100000001b3;
  return 20000 + uint32_t(hash % 1000) * kPorts;
}
