// Finds device types by the names that users and drivers use: "RTX 4090", "NVIDIA A100-SXM4-80GB",
// "4090".
#include "zorse/Planning/Cluster.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>

using namespace zorse::planning;

namespace {

/// Parts of a name: the product without vendor and spaces, its form factor, and its memory.
struct Spelled {
  std::string product; ///< "rtx4090", "a100"
  std::string mount;   ///< "sxm", "pcie" or another; empty: unspecified
  double memory = 0;   ///< GB; 0: unspecified
};

bool isNumber(const std::string &text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
}

Spelled spelled(const std::string &name) {
  std::vector<std::string> words(1);
  for (char c : name)
    if (std::isalnum(static_cast<unsigned char>(c)))
      words.back() += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    else if (!words.back().empty())
      words.emplace_back();
  static const char *const kIgnored[] = {"nvidia",   "geforce", "tesla", "quadro",     "amd",
                                         "instinct", "radeon",  "gpu",   "generation", "gb"};
  Spelled out;
  for (const std::string &word : words) {
    const std::string digits = word.substr(0, word.find_first_not_of("0123456789"));
    if (std::find(std::begin(kIgnored), std::end(kIgnored), word) != std::end(kIgnored))
      continue;
    if (word.rfind("sxm", 0) == 0 || word.rfind("hbm", 0) == 0) // drivers call the SXM form of an
                                                                // H100 just HBM3
      out.mount = "sxm";
    else if (word == "pcie" || word == "nvl")
      out.mount = word;
    else if (word == digits + "gb" || (isNumber(word) && !out.product.empty() && word.size() <= 3 &&
                                       out.product != "rtx" && out.product != "titan"))
      out.memory = std::atof(digits.c_str());
    else
      out.product += word;
  }
  return out;
}

} // namespace

const DeviceType *zorse::planning::findDeviceType(const std::string &name, uint64_t memory) {
  for (const DeviceType &type : deviceTypes())
    if (name == type.name)
      return &type;
  Spelled given = spelled(name);
  if (memory > 0)
    given.memory = static_cast<double>(memory) / 1e9;
  std::vector<const DeviceType *> found, mounted; // types without and with a form factor
  bool open = false;
  for (const DeviceType &type : deviceTypes()) {
    const Spelled known = spelled(type.name);
    const bool same = given.product == known.product || "rtx" + given.product == known.product ||
                      given.product == "rtx" + known.product;
    // Drivers report slightly less or more memory than the vendor.
    if (!same || (given.memory > 0 &&
                  std::abs(given.memory * 1e9 / static_cast<double>(type.memory) - 1) > 0.12))
      continue;
    if (known.mount.empty())
      found.push_back(&type);
    else if (known.mount == given.mount)
      mounted.push_back(&type);
    else
      open |= given.mount.empty();
  }
  if (!mounted.empty())
    return mounted.size() == 1 ? mounted.front() : nullptr;
  return found.size() == 1 && !open ? found.front() : nullptr;
}
