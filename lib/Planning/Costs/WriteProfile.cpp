#include "zorse/Planning/Profile.h"

#include <nlohmann/json.hpp>

using namespace zorse::planning;
using nlohmann::ordered_json;

namespace {

ordered_json toJson(const ProfilePoint &point) {
  ordered_json out = {{"batch_size", point.rows}};
  for (auto [key, seconds] :
       {std::make_pair("forward", point.forward), std::make_pair("backward", point.backward),
        std::make_pair("input_gradients", point.inputGradients),
        std::make_pair("weight_gradients", point.weightGradients)})
    if (seconds >= 0)
      out[key] = seconds;
  if (point.memory >= 0)
    out["memory"] = point.memory;
  return out;
}

std::string text(const ordered_json &value) {
  return value.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

} // namespace

std::string zorse::planning::writeProfile(const Profile &profile) {
  std::string out = "{\n  \"format\": 2";
  if (!profile.model.empty())
    out += ",\n  \"model\": " + text(profile.model);
  if (!profile.precision.empty())
    out += ",\n  \"precision\": " + text(profile.precision);
  if (!profile.comment.empty())
    out += ",\n  \"comment\": " + text(profile.comment);
  out += ",\n  \"devices\": [";
  for (size_t d = 0; d < profile.devices.size(); ++d) {
    const DeviceProfile &device = profile.devices[d];
    out += std::string(d ? "," : "") + "\n    {\"device\": " + text(device.device);
    if (device.memory)
      out += ", \"memory\": " + std::to_string(device.memory);
    if (device.launchOverhead >= 0)
      out += ", \"launch\": " + text(device.launchOverhead);
    auto rate = [&](const char *key, const char *each, double perOne, double fixed) {
      if (perOne >= 0)
        out += std::string(",\n     \"") + key +
               "\": " + text(ordered_json{{each, perOne}, {"fixed", fixed}});
    };
    rate("update", "per_element", device.updatePerElement, device.updateFixed);
    rate("host_update", "per_element", device.hostUpdatePerElement, device.hostUpdateFixed);
    rate("norm", "per_element", device.normPerElement, device.normFixed);
    rate("copy", "per_byte", device.copyPerByte, device.copyFixed);
    rate("load", "per_byte", device.loadPerByte, device.loadFixed);
    if (device.communicationPerByte >= 0)
      out += ",\n     \"communication\": " +
             text(ordered_json{{"per_byte", device.communicationPerByte},
                               {"per_message", device.communicationPerMessage},
                               {"delay", device.communicationDelay}});
    if (!device.classes.empty())
      out += ",\n     \"unit_classes\": {";
    const char *separator = "\n";
    for (const auto &[name, degrees] : device.classes) {
      out += separator + ("      " + text(name)) + ": [";
      separator = ",\n";
      for (size_t i = 0; i < degrees.size(); ++i) {
        out += std::string(i ? "," : "") +
               "\n        {\"tensor_parallel_size\": " + std::to_string(degrees[i].degree) +
               ", \"measurements\": [";
        for (size_t p = 0; p < degrees[i].points.size(); ++p)
          out += std::string(p ? "," : "") + "\n          " + text(toJson(degrees[i].points[p]));
        out += "]}";
      }
      out += "]";
    }
    out += device.classes.empty() ? "}" : "}}";
  }
  out += "]";
  if (!profile.links.empty()) {
    out += ",\n  \"links\": [";
    for (size_t i = 0; i < profile.links.size(); ++i) {
      const LinkProfile &link = profile.links[i];
      ordered_json row = {{"from", link.from},
                          {"to", link.to},
                          {"bandwidth", link.bandwidth},
                          {"latency", link.latency}};
      if (link.perFlowBandwidth > 0)
        row["per_flow_bandwidth"] = link.perFlowBandwidth;
      if (link.halfBandwidthBytes > 0)
        row["half_bandwidth_bytes"] = link.halfBandwidthBytes;
      out += std::string(i ? "," : "") + "\n    " + text(row);
    }
    out += "]";
  }
  return out + "\n}\n";
}
