#include "ConfigFile.h"

#include "NearestName.h"
#include "RenamedFlags.h"

#include "zorse/Support/RegularFile.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <set>

using namespace zorse;

namespace {

const std::vector<std::string> kTools = {"zorse-cluster", "zorse-compile", "zorse-export",
                                         "zorse-inspect", "zorse-plan",    "zorse-profile",
                                         "zorse-run"};
const std::set<std::string> kNotInFiles = {"--help", "--version", "--config"};

/// The option's key in the file: "steps" for --max-steps, "bundle" for a positional argument.
std::string keyOf(const CLI::Option &option) {
  std::string name = option.get_name();
  size_t begin = name.find_first_not_of('-');
  return begin == std::string::npos ? name : name.substr(begin);
}

bool isFlag(const CLI::Option &option) { return option.get_expected_max() == 0; }

} // namespace

std::shared_ptr<ConfigFile> ConfigFile::addTo(CLI::App &app, const std::string &tool) {
  std::shared_ptr<ConfigFile> file(new ConfigFile(app, tool));
  app.config_formatter(file);
  app.set_config("--config")
      ->description("YAML file with options (names without dashes; options of one tool under its "
                    "name); the command line takes precedence")
      ->expected(1)
      ->check(CLI::Validator(
          [](std::string &path) { // CLI11 would block on a FIFO until a process writes to it
            struct stat info = {};
            Result<int> descriptor = openRegularFile(path, info);
            if (!descriptor.failed())
              ::close(*descriptor);
            return descriptor.message();
          },
          ""));
  return file;
}

struct ConfigFile::Reader {
  const ConfigFile &file;
  std::vector<CLI::ConfigItem> items;
  std::set<std::string> own; ///< keys of the tool's section, which takes precedence over options of
                             ///< all tools

  [[noreturn]] void fail(const YAML::Mark &mark, const std::string &what) const {
    std::string place = file.path() + (mark.is_null() ? "" : ":" + std::to_string(mark.line + 1));
    throw CLI::ConfigError(place + ": " + what, CLI::ExitCodes::ConfigError);
  }

  const CLI::Option *find(const std::string &key) const {
    for (const CLI::Option *option : file.app_.get_options())
      if (keyOf(*option) == key && kNotInFiles.count(option->get_name()) == 0)
        return option;
    return nullptr;
  }

  const CLI::Option &expect(const YAML::Mark &mark, const std::string &key) const {
    if (const CLI::Option *option = find(key))
      return *option;
    std::vector<std::string> known;
    for (const CLI::Option *option : file.app_.get_options())
      if (kNotInFiles.count(option->get_name()) == 0)
        known.push_back(keyOf(*option));
    known.insert(known.end(), kTools.begin(), kTools.end());
    for (const std::string &now : presentNames(key))
      if (std::find(known.begin(), known.end(), now) != known.end())
        fail(mark, "option '" + key + "' is now '" + now + "'");
    std::string near = nearestName(known, key);
    fail(mark,
         file.tool_ + " has no option '" + key + "'" +
             (near.empty() ? "" : "; did you mean '" + near + "'?") + (near.empty() ? "; " : " ") +
             file.tool_ +
             " --help lists the options; those of another tool belong under its name, such as '" +
             (file.tool_ == "zorse-compile" ? "zorse-run" : "zorse-compile") + ":'");
  }

  std::string scalar(const YAML::Node &node, const std::string &key) const {
    if (!node.IsScalar())
      fail(node.Mark(), "'" + key + "' expects a value" +
                            (node.IsNull() ? ", found none" : ", found a list or mapping"));
    return node.Scalar();
  }

  /// Words of a value: a scalar is one word, a list one per item, a mapping one NAME=VALUE per
  /// entry.
  std::vector<std::string> words(const YAML::Node &node, const std::string &key) const {
    std::vector<std::string> all;
    if (node.IsSequence())
      for (const YAML::Node &each : node)
        all.push_back(scalar(each, key));
    else if (node.IsMap())
      for (const auto &each : node)
        all.push_back(scalar(each.first, key) + "=" + scalar(each.second, key));
    else
      all.push_back(scalar(node, key));
    if (all.empty())
      fail(node.Mark(), "'" + key + "' is empty; leave it out");
    return all;
  }

  void take(const YAML::Mark &mark, const std::string &key, const YAML::Node &value) {
    const CLI::Option &option = expect(mark, key);
    file.places_.push_back({&option, mark.line + 1});
    if (value.IsNull()) // YAML would report the position of the next key
      fail(mark, "'" + key + "' expects a value, found none");
    CLI::ConfigItem item;
    item.name = key;
    if (isFlag(option)) {
      std::string text = scalar(value, key);
      std::transform(text.begin(), text.end(), text.begin(),
                     [](unsigned char c) { return std::tolower(c); });
      if (text == "false" || text == "no" || text == "off")
        return; // same as not given
      if (text != "true" && text != "yes" && text != "on")
        fail(value.Mark(),
             "'" + key + "' is on or off: expects true or false, found '" + value.Scalar() + "'");
      item.inputs = {"true"};
    } else {
      item.inputs = words(value, key);
      // A list in one word, as on the command line.
      if (option.get_items_expected_max() == 1 && item.inputs.size() > 1) {
        std::string joined;
        for (const std::string &word : item.inputs)
          joined += (joined.empty() ? "" : ",") + word;
        item.inputs = {joined};
      }
    }
    items.push_back(std::move(item));
  }

  void readSection(const YAML::Node &section, bool all) {
    std::set<std::string> seen;
    for (const auto &each : section) {
      std::string key = scalar(each.first, "a name");
      YAML::Mark mark = each.first.Mark();
      if (!seen.insert(key).second)
        fail(mark, "'" + key + "' is given a second time");
      bool isTool = std::find(kTools.begin(), kTools.end(), key) != kTools.end();
      if (all && isTool) {
        if (!each.second.IsMap() && !each.second.IsNull())
          fail(mark, "'" + key + "' expects options of that tool, NAME: VALUE, one a line");
        continue;
      }
      if (all && own.count(key)) {
        expect(mark, key);
        continue;
      }
      if (!all)
        own.insert(key);
      take(mark, key, each.second);
    }
  }

  void read(std::istream &input) {
    YAML::Node root;
    try {
      root = YAML::Load(input);
    } catch (const YAML::Exception &error) {
      fail(error.mark, "is not YAML: " + error.msg);
    }
    if (root.IsNull())
      return;
    if (!root.IsMap())
      fail(root.Mark(), "expects options, NAME: VALUE, one a line");
    for (const auto &each : root)
      if (each.first.IsScalar() && each.first.Scalar() == file.tool_ && each.second.IsMap())
        readSection(each.second, /*all=*/false);
    readSection(root, /*all=*/true);
  }
};

std::vector<CLI::ConfigItem> ConfigFile::from_config(std::istream &input) const {
  places_.clear();
  Reader reader{*this, {}, {}};
  reader.read(input);
  return std::move(reader.items);
}

std::string ConfigFile::placeOf(const std::string &message) const {
  for (const Place &place : places_) {
    std::string name = place.option->get_name();
    const size_t at = message.find(name); // "--max-steps: ...", "Could not convert: --max-steps =
                                          // ..."
    bool about = at != std::string::npos &&
                 (at + name.size() == message.size() || message[at + name.size()] == ':' ||
                  message[at + name.size()] == ' ');
    if (about)
      return " (line " + std::to_string(place.line) + " of " + path() + ")";
  }
  return {};
}
