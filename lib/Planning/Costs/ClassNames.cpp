#include "zorse/Planning/Profile.h"

#include <map>
#include <sstream>

using namespace zorse;

std::vector<std::string> planning::classNames(const bundle::ModelSummary &summary) {
  std::map<uint32_t, std::string> first;
  for (const bundle::UnitInfo &unit : summary.units()) {
    std::string &name = first[unit.class_id()];
    if (!name.empty())
      continue;
    std::istringstream words(unit.name());
    for (std::string word; words >> word;)
      if (word.find_first_not_of("0123456789") != std::string::npos)
        name += (name.empty() ? "" : " ") + word;
    if (name.empty())
      name = "class";
  }
  std::vector<std::string> names;
  std::map<std::string, int> used;
  for (auto &[id, name] : first) {
    if (id >= static_cast<uint32_t>(summary.units_size())) // a summary that no compiler wrote
      break;
    names.resize(id + 1);
    int times = ++used[name];
    names[id] = times == 1 ? name : name + " (" + std::to_string(times) + ")";
  }
  return names;
}
