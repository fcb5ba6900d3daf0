#include "SlowDevices.h"

#include "zorse/Base/Format.h"
#include "zorse/runtime/OutputFile.h"

#include <nlohmann/json.hpp>

#include <cstdlib>
#include <fstream>

using namespace zorse::run;
using nlohmann::ordered_json;

std::string zorse::run::slowDevicesFile(const Options &o) {
  return o.checkpointDirectory + "/slow-devices.json";
}

SlowDevices zorse::run::readSlowDevices(const std::string &path) {
  SlowDevices out;
  std::ifstream file(path);
  const ordered_json root = ordered_json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (!root.is_object())
    return out;
  const auto number = [&](const char *name) {
    const auto found = root.find(name);
    return found != root.end() && found->is_number() ? found->get<double>() : 0;
  };
  out.step = uint64_t(number("step"));
  out.stepSeconds = number("step_seconds");
  out.startSeconds = number("start_seconds");
  if (const auto devices = root.find("devices"); devices != root.end() && devices->is_object())
    for (const auto &[name, times] : devices->items())
      if (times.is_number() && times.get<double>() > 0)
        out.times[name] = times.get<double>();
  return out;
}

zorse::runtime::Status zorse::run::writeSlowDevices(const std::string &path,
                                                    const SlowDevices &slow) {
  ordered_json devices = ordered_json::object();
  for (const auto &[name, times] : slow.times)
    devices[name] = std::strtod(format("%.2g", times).c_str(), nullptr);
  const ordered_json root = {{"devices", devices},
                             {"step", slow.step},
                             {"step_seconds", slow.stepSeconds},
                             {"start_seconds", slow.startSeconds}};
  return runtime::writeOutput(
      path, root.dump(1, ' ', false, ordered_json::error_handler_t::replace) + "\n");
}

std::string zorse::run::slowdownText(const Slowdowns &slowdowns) {
  std::string text;
  for (const auto &[name, times] : slowdowns)
    text += (text.empty() ? "" : ",") + name + "=" + format("%.2g", times);
  return text;
}
