#include "RenamedFlags.h"

#include <sstream>

namespace zorse {

namespace {

struct Renamed {
  const char *before;
  const char *now; ///< names in different tools, separated by spaces
};

const Renamed kRenamed[] = {
#define RENAMED(before, now) {before, now},
#define RENAMED_FLAG(before, now) {before, now},
#include "renamed_options.def"
#undef RENAMED
#undef RENAMED_FLAG
};

const Renamed kRemoved[] = {
    {"skip-nonfinite", "every run skips the update if a gradient or the loss is not finite"},
};

} // namespace

std::vector<std::string> presentNames(const std::string &name) {
  std::vector<std::string> names;
  for (const Renamed &each : kRenamed)
    if (name == each.before) {
      std::istringstream words(each.now);
      for (std::string word; words >> word;)
        names.push_back(word);
    }
  return names;
}

std::vector<std::string> renamedNames() {
  std::vector<std::string> names;
  for (const Renamed &each : kRenamed)
    names.push_back(each.before);
  return names;
}

std::string whyRemoved(const std::string &name) {
  for (const Renamed &each : kRemoved)
    if (name == each.before)
      return each.now;
  return {};
}

CLI::Validator renamedValues(std::vector<std::pair<std::string, std::string>> oldToNew) {
  return CLI::Validator(
      [oldToNew = std::move(oldToNew)](std::string &value) {
        for (const auto &[before, now] : oldToNew)
          if (value == before)
            return before + " is now " + now;
        return std::string();
      },
      "");
}

} // namespace zorse
