#include "zorse/runtime/DeviceFactors.h"

#include <cstdio>
#include <cstdlib>

#include <fnmatch.h>

using namespace zorse::runtime;

Result<std::vector<double>> zorse::runtime::deviceFactors(const char *option,
                                                          const std::vector<std::string> &texts,
                                                          double max, const Bundle &bundle) {
  std::vector<double> factors(bundle.devices.size(), 1);
  for (const std::string &text : texts) {
    size_t equals = text.rfind('=');
    char *end = nullptr;
    double factor = equals == std::string::npos ? 0 : std::strtod(text.c_str() + equals + 1, &end);
    if (!(factor > 0 && factor <= max) || *end != 0 || end == text.c_str() + equals + 1) {
      char limit[32];
      std::snprintf(limit, sizeof limit, "%g", max);
      return userError(std::string(option) +
                       ": expected DEVICE=NUMBER with a number above 0 and at most " + limit +
                       ", got '" + text + "'");
    }
    std::string pattern = text.substr(0, equals);
    bool found = false;
    for (size_t d = 0; d < factors.size(); ++d)
      if (fnmatch(pattern.c_str(), bundle.devices[d].name.c_str(), 0) == 0) {
        factors[d] = factor;
        found = true;
      }
    if (!found)
      return userError(std::string(option) + ": the bundle has no device '" + pattern +
                       "'; its first device is '" + bundle.devices[0].name +
                       "'. In patterns, * matches any characters");
  }
  return factors;
}
