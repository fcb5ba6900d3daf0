#include "DeviceDiscovery.h"

#include <fstream>

using namespace zorse::run;
using namespace zorse::runtime;

namespace {

constexpr double kInterval = 1, kTimeLimit = 10; ///< seconds

DeviceNames readNames(const std::string &path) {
  DeviceNames names;
  std::ifstream file(path);
  for (std::string name; file >> name;)
    names.insert(name);
  return names;
}

} // namespace

std::optional<DeviceNames> DeviceDiscovery::poll(double now) {
  if (command.empty())
    return std::nullopt;
  if (!process) {
    if (now < startedAt + kInterval)
      return std::nullopt;
    startedAt = now;
    Result<std::unique_ptr<BackgroundProcess>> started =
        BackgroundProcess::start({"/bin/sh", "-c", command}, output, /*urgent=*/true);
    if (started.failed())
      complain(started.message());
    else
      process = std::move(*started);
    return std::nullopt;
  }
  const std::optional<int> code = process->poll();
  if (!code && now < startedAt + kTimeLimit)
    return std::nullopt;
  process.reset();
  if (!code)
    complain("has not ended within 10 s");
  else if (*code != 0)
    complain("ended with exit code " + std::to_string(*code) + ": " + lastLines(output, 3));
  else {
    complaint.clear();
    return readNames(output);
  }
  return std::nullopt;
}

void DeviceDiscovery::complain(const std::string &text) {
  if (text == complaint)
    return;
  complaint = text;
  warn("warning: --device-discovery-script " + text + "; the devices stay as they are");
}
