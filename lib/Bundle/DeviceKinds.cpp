#include "zorse/Bundle/DeviceKinds.h"

#include <algorithm>
#include <cstdlib>

using namespace zorse;

/// Returns 61 for "sm_61"; 0 for names that are not NVIDIA GPUs. PTX for one runs on all with a
/// larger number.
static long capabilityOf(const std::string &name) {
  if (name.rfind("sm_", 0) != 0)
    return 0;
  char *end = nullptr;
  const long number = std::strtol(name.c_str() + 3, &end, 10);
  return *end == 0 && end != name.c_str() + 3 ? number : 0;
}

const std::vector<DeviceKind> &zorse::deviceKinds() {
  static const std::vector<std::string> x86 = {"x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4"};
  // "emu" is the emulator of the tests, which has its own code.
  static const std::vector<std::string> gpus = {"sm_60", "sm_70", "sm_75",  "sm_80",  "sm_86",
                                                "sm_89", "sm_90", "sm_100", "sm_120", "emu"};
  static const std::vector<DeviceKind> kinds = {
      // name, driven, computes, host's processors, host's memory, asynchronous, direct, transports,
      // architectures
      {"cpu", true, true, true, true, false, false, {"local", "gloo"}, x86},
      {"null", true, false, false, true, false, false, {"local", "gloo"}, {}},
      {"cuda", true, true, false, false, true, true, {"local", "gloo"}, gpus},
      {"sim", false, true, false, false, true, false, {}, {}},
  };
  return kinds;
}

const DeviceKind *zorse::findDeviceKind(const std::string &name) {
  for (const DeviceKind &kind : deviceKinds())
    if (name == kind.name)
      return &kind;
  return nullptr;
}

const DeviceKind &zorse::deviceKindOf(const std::string &name) {
  static const DeviceKind unknown = {"unknown", false, true, false, false, true, false, {}, {}};
  const DeviceKind *kind = findDeviceKind(name);
  return kind ? *kind : unknown;
}

std::string zorse::deviceKindNames(bool driven) {
  std::string names;
  for (const DeviceKind &kind : deviceKinds())
    if (kind.driven || !driven)
      names += (names.empty() ? "" : ", ") + std::string(kind.name);
  return names;
}

bool DeviceKind::joins(const std::string &transport) const {
  return std::find(transports.begin(), transports.end(), transport) != transports.end();
}

bool DeviceKind::runs(const std::string &offered, const std::string &code) const {
  if (const long has = capabilityOf(offered), needs = capabilityOf(code);
      !code.empty() && (has || needs))
    return has && needs && has >= needs;
  auto level = [&](const std::string &name) {
    return std::find(architectures.begin(), architectures.end(), name) - architectures.begin();
  };
  const long none = long(architectures.size()), has = level(offered),
             needs = code.empty() ? 0 : level(code);
  return none == 0 || (needs < none ? has < none && has >= needs : has == none || offered == code);
}

std::string DeviceKind::codeFor(const std::string &offered) const {
  std::string newest;
  for (const std::string &code : architectures)
    if (runs(offered, code) && (capabilityOf(code) > 0) == (capabilityOf(offered) > 0))
      newest = code;
  return newest;
}

bool DeviceKind::hasBf16(const std::string &code) {
  const long capability = capabilityOf(code);
  return capability == 0 || capability >= 80;
}

bool DeviceKind::hasTf32(const std::string &code) {
  return capabilityOf(code) >= 80 || code.compare(0, 3, "emu") == 0;
}

bool DeviceKind::exists(const std::string &offered) const {
  static const std::vector<long> between = {61,  62,  72,  87, 88,
                                            101, 103, 110, 121}; // NVIDIA GPUs for which no code is
                                                                 // generated
  if (std::find(architectures.begin(), architectures.end(), offered) != architectures.end())
    return true;
  const long capability = capabilityOf(offered);
  long newest = 0;
  for (const std::string &code : architectures)
    newest = std::max(newest, capabilityOf(code));
  return newest > 0 && (capability > newest ||
                        std::find(between.begin(), between.end(), capability) != between.end());
}
