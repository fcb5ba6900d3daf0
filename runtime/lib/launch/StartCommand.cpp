#include "zorse/runtime/StartCommand.h"

using namespace zorse::runtime;

namespace {

/// Replaces every occurrence. \returns whether there was any
bool replaceAll(std::string &text, const std::string &what, const std::string &by) {
  bool found = false;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + by.size())) {
    text.replace(at, what.size(), by);
    found = true;
  }
  return found;
}

} // namespace

std::string launching::shellQuoted(const std::string &text) {
  std::string quoted = "'";
  for (const char c : text)
    if (c == '\'')
      quoted += "'\\''";
    else
      quoted += c;
  return quoted + "'";
}

std::string launching::startCommandLine(const std::string &commandTemplate, const std::string &node,
                                        const std::string &directory,
                                        const std::vector<std::string> &environment,
                                        const std::vector<std::string> &words) {
  std::string command = "cd " + shellQuoted(directory) + " && exec env";
  for (const std::vector<std::string> *list : {&environment, &words})
    for (const std::string &word : *list) {
      command += ' ';
      command += shellQuoted(word);
    }
  constexpr const char *kCommand = "{command}";
  std::string line = commandTemplate;
  if (line.find(kCommand) == std::string::npos)
    line += std::string(" ") + kCommand;
  // The node first: the command may contain "{node}".
  replaceAll(line, "{node}", shellQuoted(node));
  replaceAll(line, kCommand, shellQuoted(command));
  return "exec " + line;
}
