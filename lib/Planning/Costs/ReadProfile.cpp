// Converts profile.json to a Profile. Every message contains the JSON path, the expected and the
// found value.
#include "ProfileFields.h"

#include <algorithm>
#include <set>

using namespace zorse;
using namespace zorse::planning;
using namespace zorse::fields;
using json = Json;

namespace {

constexpr size_t kMaxDeviceProfiles = 65536, kMaxClasses = 4096, kMaxPoints = 4096,
                 kMaxLinks = 1 << 20;
constexpr int64_t kMaxRows = int64_t(1) << 31, kMaxDegree = 1024;

const json &list(const json &object, const char *key, const std::string &path, size_t max) {
  return toArray(object[key], path, max);
}

double toSeconds(const json &value, const std::string &path) {
  return toNumber(value, path, 0, 1e6, "seconds");
}

void readRate(const json &object, const char *key, const char *each, const std::string &path,
              double &rate, double &fixed) {
  if (!object.contains(key))
    return;
  std::string here = path + "." + key;
  checkKeys(object[key], here, {each, "fixed"});
  if (!object[key].contains(each))
    fail(here, std::string("missing key \"") + each + "\"");
  rate = toNumber(object[key][each], here + "." + each, 0, 1, "seconds");
  if (object[key].contains("fixed"))
    fixed = toSeconds(object[key]["fixed"], here + ".fixed");
}

std::vector<ProfilePoint> readPoints(const json &points, const std::string &path) {
  std::vector<ProfilePoint> result;
  for (size_t i = 0; i < points.size(); ++i) {
    const json &from = points[i];
    std::string here = at(path, i);
    checkKeys(
        from, here,
        {"batch_size", "forward", "backward", "input_gradients", "weight_gradients", "memory"});
    if (!from.contains("batch_size"))
      fail(here, "missing key \"batch_size\"");
    ProfilePoint point;
    point.rows = toInteger(from["batch_size"], here + ".batch_size", 1, kMaxRows);
    if (!result.empty() && result.back().rows >= point.rows)
      fail(here + ".batch_size", "expected more than the " + std::to_string(result.back().rows) +
                                     " of the measurement before, got " +
                                     std::to_string(point.rows) +
                                     "; measurements are in ascending order");
    bool any = false;
    for (auto [key, seconds] :
         {std::make_pair("forward", &point.forward), std::make_pair("backward", &point.backward),
          std::make_pair("input_gradients", &point.inputGradients),
          std::make_pair("weight_gradients", &point.weightGradients)})
      if (from.contains(key)) {
        *seconds = toSeconds(from[key], here + "." + key);
        any = true;
      }
    if (!any)
      fail(here, "expected at least one of forward, backward, input_gradients, weight_gradients");
    if (from.contains("memory"))
      point.memory = toInteger(from["memory"], here + ".memory", 0, int64_t(1) << 50);
    result.push_back(point);
  }
  return result;
}

std::vector<ClassProfile> readClass(const json &value, const std::string &path) {
  if (!value.is_array() || value.size() > kMaxPoints)
    fail(path, "expected an array of at most " + std::to_string(kMaxPoints) +
                   ", of measurements or of {tensor_parallel_size, measurements}, got " +
                   show(value));
  std::vector<ClassProfile> result;
  if (value.empty())
    return result;
  if (!value[0].is_object() || !value[0].contains("measurements")) {
    result.push_back({1, readPoints(value, path)});
    return result;
  }
  std::set<uint32_t> degrees;
  for (size_t i = 0; i < value.size(); ++i) {
    std::string here = at(path, i);
    checkKeys(value[i], here, {"tensor_parallel_size", "measurements"});
    ClassProfile profile;
    if (value[i].contains("tensor_parallel_size"))
      profile.degree = static_cast<uint32_t>(toInteger(
          value[i]["tensor_parallel_size"], here + ".tensor_parallel_size", 1, kMaxDegree));
    if (!degrees.insert(profile.degree).second)
      fail(here + ".tensor_parallel_size",
           "size " + std::to_string(profile.degree) + " is given twice");
    if (!value[i].contains("measurements"))
      fail(here, "missing key \"measurements\"");
    profile.points = readPoints(list(value[i], "measurements", here + ".measurements", kMaxPoints),
                                here + ".measurements");
    result.push_back(std::move(profile));
  }
  return result;
}

DeviceProfile readDevice(const json &from, const std::string &path) {
  checkKeys(from, path,
            {"device", "unit_classes", "update", "host_update", "norm", "copy", "load", "launch",
             "communication", "memory"});
  DeviceProfile device;
  if (!from.contains("device"))
    fail(path, "missing key \"device\" (a device's name or type)");
  device.device = toText(from["device"], path + ".device", false);
  if (from.contains("unit_classes")) {
    const json &classes = from["unit_classes"];
    if (!classes.is_object() || classes.size() > kMaxClasses)
      fail(path + ".unit_classes", "expected an object of at most " + std::to_string(kMaxClasses) +
                                       " classes, got " + show(classes));
    for (auto &[name, value] : classes.items())
      device.classes[name] = readClass(value, path + ".unit_classes[" + show(json(name)) + "]");
  }
  readRate(from, "update", "per_element", path, device.updatePerElement, device.updateFixed);
  readRate(from, "host_update", "per_element", path, device.hostUpdatePerElement,
           device.hostUpdateFixed);
  readRate(from, "norm", "per_element", path, device.normPerElement, device.normFixed);
  readRate(from, "copy", "per_byte", path, device.copyPerByte, device.copyFixed);
  readRate(from, "load", "per_byte", path, device.loadPerByte, device.loadFixed);
  if (from.contains("launch"))
    device.launchOverhead = toSeconds(from["launch"], path + ".launch");
  if (from.contains("communication")) {
    const json &moving = from["communication"];
    std::string here = path + ".communication";
    checkKeys(moving, here, {"per_byte", "per_message", "delay"});
    if (!moving.contains("per_byte"))
      fail(here, "missing key \"per_byte\"");
    device.communicationPerByte = toNumber(moving["per_byte"], here + ".per_byte", 0, 1, "seconds");
    if (moving.contains("per_message"))
      device.communicationPerMessage = toSeconds(moving["per_message"], here + ".per_message");
    if (moving.contains("delay"))
      device.communicationDelay = toSeconds(moving["delay"], here + ".delay");
  }
  if (from.contains("memory"))
    device.memory =
        static_cast<uint64_t>(toInteger(from["memory"], path + ".memory", 0, int64_t(1) << 50));
  return device;
}

LinkProfile readLink(const json &from, const std::string &path) {
  checkKeys(from, path,
            {"from", "to", "bandwidth", "latency", "per_flow_bandwidth", "half_bandwidth_bytes"});
  for (const char *key : {"from", "to", "bandwidth"})
    if (!from.contains(key))
      fail(path, std::string("missing key \"") + key + "\"");
  LinkProfile link;
  link.from = toText(from["from"], path + ".from", false);
  link.to = toText(from["to"], path + ".to", false);
  link.bandwidth = toNumber(from["bandwidth"], path + ".bandwidth", 1e3, 1e15, "bytes/s");
  if (from.contains("latency"))
    link.latency = toNumber(from["latency"], path + ".latency", 0, 100, "seconds");
  if (from.contains("per_flow_bandwidth"))
    link.perFlowBandwidth =
        toNumber(from["per_flow_bandwidth"], path + ".per_flow_bandwidth", 1e3, 1e15, "bytes/s");
  if (from.contains("half_bandwidth_bytes"))
    link.halfBandwidthBytes =
        toNumber(from["half_bandwidth_bytes"], path + ".half_bandwidth_bytes", 0, 1e12, "bytes");
  return link;
}

} // namespace

namespace {

void renameMeasurements(json &list) {
  if (!list.is_array())
    return;
  for (json &item : list) {
    renameKey(item, "rows", "batch_size");
    renameKey(item, "degree", "tensor_parallel_size");
    renameKey(item, "points", "measurements");
    if (item.is_object() && item.contains("measurements"))
      renameMeasurements(item["measurements"]);
  }
}

/// Keys of format 1, which is read, too: measurements are expensive.
void upgrade(json &root) {
  if (root.contains("devices") && root["devices"].is_array())
    for (json &device : root["devices"]) {
      renameKey(device, "classes", "unit_classes");
      if (device.is_object() && device.contains("unit_classes") &&
          device["unit_classes"].is_object())
        for (json &measured : device["unit_classes"])
          renameMeasurements(measured);
    }
  if (root.contains("links") && root["links"].is_array())
    for (json &link : root["links"]) {
      renameKey(link, "flow", "per_flow_bandwidth");
      renameKey(link, "half_size", "half_bandwidth_bytes");
    }
}

} // namespace

void zorse::planning::readMeasurements(json root, Profile &profile) {
  upgrade(root);
  std::set<std::string> names;
  if (root.contains("devices")) {
    const json &devices = list(root, "devices", "devices", kMaxDeviceProfiles);
    for (size_t i = 0; i < devices.size(); ++i) {
      profile.devices.push_back(readDevice(devices[i], at("devices", i)));
      if (!names.insert(profile.devices.back().device).second)
        fail(at("devices", i) + ".device",
             show(json(profile.devices.back().device)) + " is given twice");
    }
  }
  if (root.contains("links")) {
    const json &links = list(root, "links", "links", kMaxLinks);
    for (size_t i = 0; i < links.size(); ++i)
      profile.links.push_back(readLink(links[i], at("links", i)));
  }
}

namespace {

Profile readRoot(const json &root) {
  checkKeys(root, "", {"format", "model", "precision", "comment", "devices", "links"});
  if (root.contains("format"))
    toInteger(root["format"], "format", 1, 2);
  Profile profile;
  if (root.contains("model"))
    profile.model = toText(root["model"], "model", true);
  if (root.contains("precision"))
    profile.precision = toText(root["precision"], "precision", true);
  if (root.contains("comment"))
    profile.comment = toText(root["comment"], "comment", true);
  readMeasurements(root, profile);
  if (profile.devices.empty() && profile.links.empty())
    fail("", "expected \"devices\" or \"links\", found neither");
  return profile;
}

} // namespace

Result<Profile> zorse::planning::readProfile(const std::string &text) {
  return fields::read(text, "the profile", kMaxProfileBytes, readRoot);
}

Result<Profile> zorse::planning::readProfileFile(const std::string &path) {
  return parseRegularFile(path, kMaxProfileBytes, readProfile);
}

void zorse::planning::mergeProfile(Profile &all, Profile later) {
  if (all.model.empty())
    all.model = later.model;
  if (all.precision.empty())
    all.precision = later.precision;
  all.comment += (all.comment.empty() || later.comment.empty() ? "" : "; ") + later.comment;
  for (DeviceProfile &device : later.devices) {
    auto known = std::find_if(all.devices.begin(), all.devices.end(),
                              [&](const DeviceProfile &d) { return d.device == device.device; });
    if (known == all.devices.end()) {
      all.devices.push_back(std::move(device));
      continue;
    }
    for (auto &entry : known->classes)
      device.classes.insert(entry); // classes that the later profile does not have
    auto keep = [](double &each, double &fixed, double otherEach, double otherFixed) {
      if (each < 0) {
        each = otherEach;
        fixed = otherFixed;
      }
    };
    keep(device.updatePerElement, device.updateFixed, known->updatePerElement, known->updateFixed);
    keep(device.hostUpdatePerElement, device.hostUpdateFixed, known->hostUpdatePerElement,
         known->hostUpdateFixed);
    keep(device.normPerElement, device.normFixed, known->normPerElement, known->normFixed);
    keep(device.copyPerByte, device.copyFixed, known->copyPerByte, known->copyFixed);
    keep(device.loadPerByte, device.loadFixed, known->loadPerByte, known->loadFixed);
    if (device.communicationPerByte < 0) {
      device.communicationPerByte = known->communicationPerByte;
      device.communicationPerMessage = known->communicationPerMessage;
      device.communicationDelay = known->communicationDelay;
    }
    device.memory = device.memory ? device.memory : known->memory;
    device.launchOverhead = device.launchOverhead >= 0 ? device.launchOverhead
                                                       : known->launchOverhead;
    *known = std::move(device);
  }
  std::set<std::pair<std::string, std::string>> measured;
  for (const LinkProfile &link : later.links)
    measured.insert({link.from, link.to});
  all.links.erase(std::remove_if(all.links.begin(), all.links.end(),
                                 [&](const LinkProfile &link) {
                                   return measured.count({link.from, link.to}) > 0;
                                 }),
                  all.links.end());
  all.links.insert(all.links.end(), later.links.begin(), later.links.end());
}

Result<Profile> zorse::planning::readProfileFiles(const std::vector<std::string> &paths) {
  Profile all;
  for (const std::string &path : paths) {
    Result<Profile> profile = readProfileFile(path);
    if (profile.failed())
      return profile;
    if (!all.model.empty() && !profile->model.empty() && all.model != profile->model)
      return userError(path + ": was measured for another model (" + profile->model + ") than " +
                       paths.front() + " (" + all.model +
                       "); remove \"model\" if their units are the same");
    if (!all.precision.empty() && !profile->precision.empty() &&
        all.precision != profile->precision)
      return userError(path + ": was measured in " + profile->precision + ", and " + paths.front() +
                       " in " + all.precision +
                       "; measure both in one precision with zorse-profile");
    mergeProfile(all, std::move(*profile));
  }
  return all;
}
