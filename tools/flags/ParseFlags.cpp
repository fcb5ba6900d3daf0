#include "ParseFlags.h"

#include "ConfigFile.h"
#include "NearestName.h"
#include "RenamedFlags.h"
#include "UsualNames.h"

#include <algorithm>
#include <cstdio>

namespace zorse {

namespace {

/// Edit distance: characters to insert, delete, replace or swap with their neighbor (optimal string
/// alignment).
size_t distance(const std::string &a, const std::string &b) {
  std::vector<std::vector<size_t>> d(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i)
    for (size_t k = 0; k <= b.size(); ++k) {
      if (!i || !k) {
        d[i][k] = i + k;
        continue;
      }
      d[i][k] =
          std::min({d[i - 1][k] + 1, d[i][k - 1] + 1, d[i - 1][k - 1] + (a[i - 1] != b[k - 1])});
      if (i > 1 && k > 1 && a[i - 1] == b[k - 2] && a[i - 2] == b[k - 1])
        d[i][k] = std::min(d[i][k], d[i - 2][k - 2] + 1);
    }
  return d[a.size()][b.size()];
}

/// Returns "--max-steps" for "--step=4" style words: the part before '='. Empty if the word is not
/// a flag.
std::string flagOf(const std::string &word) {
  return word.size() > 1 && word[0] == '-' ? word.substr(0, word.find('=')) : std::string();
}

/// Returns "--clip is now --max-grad-norm" for an old name of an option of this tool, or why the
/// option was removed; otherwise an empty string.
std::string renamedFlag(const std::vector<std::string> &known, const std::string &flag) {
  const std::string name = flag.substr(std::min(flag.find_first_not_of('-'), flag.size()));
  for (const std::string &now : presentNames(name))
    if (std::find(known.begin(), known.end(), "--" + now) != known.end())
      return "--" + name + " is now --" + now;
  const std::string why = whyRemoved(name);
  return why.empty() ? why : "--" + name + " is not needed any more: " + why;
}

} // namespace

std::string nearestName(const std::vector<std::string> &known, const std::string &given) {
  const std::string dashes = given.substr(0, std::min(given.find_first_not_of('-'), given.size()));
  for (const std::string &name : sameMeaning(given))
    if (std::find(known.begin(), known.end(), dashes + name) != known.end())
      return dashes + name;
  if (hasNoCounterpart(given)) // a name with few other letters would be another option
    return {};
  std::string best;
  size_t limit = std::max<size_t>(2, given.size() / 3) + 1;
  auto consider = [&](const std::string &name, const std::string &present) {
    // A prefix of a name ("--checkpoint" of "--checkpoint-dir") is close, whatever the length of
    // the rest.
    size_t d = given.size() > 4 && name.rfind(given, 0) == 0 ? 1 : distance(name, given);
    if (d < limit) {
      limit = d;
      best = present;
    }
  };
  for (const std::string &name : known)
    consider(name, name);
  for (const std::string &before : renamedNames()) // "--bacth" is near to --batch, which is
                                                   // --global-batch-size now
    for (const std::string &now : presentNames(before))
      if (std::find(known.begin(), known.end(), dashes + now) != known.end())
        consider(dashes + before, dashes + now);
  return best;
}

std::optional<int> parseFlags(CLI::App &app, int argc, char **argv, const char *tool) {
  app.set_version_flag("--version", std::string(tool) + " " ZORSE_VERSION,
                       "Print the version and exit");
  std::shared_ptr<ConfigFile> config = ConfigFile::addTo(app, tool);
  try {
    app.parse(argc, argv);
    return std::nullopt;
  } catch (const CLI::ParseError &problem) {
    if (problem.get_exit_code() == 0)
      return app.exit(problem); // --help, --version
    std::vector<std::string> known;
    for (const CLI::Option *option : app.get_options())
      for (const std::string &name : option->get_lnames())
        known.push_back("--" + name);
    std::string hints, remarks;
    for (const std::string &word : app.remaining())
      if (std::string flag = flagOf(word); !flag.empty()) {
        std::string near = nearestName(known, flag);
        if (std::string renamed = renamedFlag(known, flag); !renamed.empty())
          remarks.append("; ").append(renamed);
        else if (!near.empty())
          hints += (hints.empty() ? "" : ", ") + near + " (for " + flag + ")";
        else if (std::string remark = remarkOn(flag); !remark.empty())
          remarks.append("; ").append(flag).append(": ").append(remark);
      }
    if (dynamic_cast<const CLI::ConfigError *>(&problem)) { // the message is complete
      fprintf(stderr, "error: %s\n", problem.what());
      return 1;
    }
    const std::string more = (hints.empty() ? "" : "; did you mean " + hints + "?") + remarks;
    fprintf(stderr, "error: %s%s%s%s %s --help lists the options\n", problem.what(),
            config->placeOf(problem.what()).c_str(), more.c_str(),
            hints.empty() || !remarks.empty() ? "." : "", tool);
    return 1;
  }
}

} // namespace zorse
