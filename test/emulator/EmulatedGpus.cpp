#include "EmulatedGpus.h"

#include <algorithm>
#include <cstdlib>
#include <sstream>

using namespace zorse::emulator;

namespace {

constexpr const char *kEmulator = "Zorse emulator";

std::string environment(const char *name) {
  const char *text = std::getenv(name);
  return text ? text : "";
}

std::vector<std::string> split(const std::string &text, char at) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, at);)
    parts.push_back(part);
  return parts;
}

/// All GPUs of the machine, the fastest first.
std::vector<EmulatedGpu> installed() {
  std::vector<EmulatedGpu> found;
  const std::string listed = environment("ZORSE_EMULATOR_GPUS"),
                    count = environment("ZORSE_EMULATOR_DEVICES");
  for (const std::string &entry : split(listed, ';')) {
    const std::vector<std::string> fields = split(entry, ',');
    if (fields.size() == 4)
      found.push_back({fields[0], std::atoi(fields[1].c_str()), std::atoi(fields[2].c_str()),
                       int(std::strtol(fields[3].c_str(), nullptr, 16))});
  }
  if (listed.empty())
    for (int i = 0; i < (count.empty() ? 1 : std::atoi(count.c_str())); ++i)
      found.push_back({kEmulator, 80, 8192, i});
  if (listed.size() < 5 || listed.substr(listed.size() - 5) != ";real")
    for (EmulatedGpu &gpu : found)
      gpu.model = kEmulator;
  return found;
}

std::string uuidOf(const EmulatedGpu &gpu) {
  char text[48];
  std::snprintf(text, sizeof text, "GPU-00000000-0000-0000-0000-0000000000%02x", unsigned(gpu.bus));
  return text;
}

std::vector<EmulatedGpu> visible() {
  std::vector<EmulatedGpu> all = installed(), seen;
  if (environment("CUDA_DEVICE_ORDER") == "PCI_BUS_ID")
    std::stable_sort(all.begin(), all.end(),
                     [](const EmulatedGpu &a, const EmulatedGpu &b) { return a.bus < b.bus; });
  if (!std::getenv("CUDA_VISIBLE_DEVICES"))
    return all;
  for (const std::string &name : split(environment("CUDA_VISIBLE_DEVICES"), ',')) {
    auto found = all.end();
    if (name.rfind("GPU-", 0) == 0)
      found = std::find_if(all.begin(), all.end(),
                           [&](const EmulatedGpu &gpu) { return uuidOf(gpu).rfind(name, 0) == 0; });
    else if (!name.empty() &&
             std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; }) &&
             std::stoul(name) < all.size())
      found = all.begin() + std::stol(name);
    if (found == all.end())
      break;
    seen.push_back(*found);
  }
  return seen;
}

} // namespace

const std::vector<EmulatedGpu> &zorse::emulator::gpus() {
  static const std::vector<EmulatedGpu> seen = visible();
  return seen;
}
