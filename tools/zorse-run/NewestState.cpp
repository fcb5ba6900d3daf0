#include "NewestState.h"

#include "zorse/runtime/CheckpointFiles.h"
#include "zorse/runtime/Report.h"

#include <nlohmann/json.hpp>

#include <cstdio>
#include <fstream>

#include <sys/stat.h>

using namespace zorse::run;
using namespace zorse::runtime;

std::string zorse::run::newestState(const Options &o) {
  std::optional<CheckpointDirectory> newest;
  if (Result<std::vector<CheckpointDirectory>> found = listCheckpoints(o.checkpointDirectory);
      !found.failed())
    for (const CheckpointDirectory &directory : *found)
      if (directory.complete && !newest)
        newest = directory;
  if (o.memoryInterval > 0)
    if (const auto memory = findMemoryCheckpoints(o.memoryDirectory, o.checkpointDirectory);
        memory && memory->step && (!newest || *memory->step >= newest->step))
      return "step " + std::to_string(*memory->step) + " in memory";
  std::string stored = newest ? "checkpoint " + newest->name : "";
  if (o.memoryInterval == 0 || o.startCommand.empty())
    return stored;
  // Only the ranks know what the nodes hold together.
  return "memory if it is complete there, else from " + (newest ? stored : "the beginning");
}

std::optional<EndedStart> zorse::run::readEndedStart(const std::string &metricsFile) {
  struct stat status = {};
  if (metricsFile.empty() || ::stat(metricsFile.c_str(), &status) != 0 || !S_ISREG(status.st_mode))
    return std::nullopt;
  EndedStart out;
  out.writtenAt = double(status.st_mtim.tv_sec) + double(status.st_mtim.tv_nsec) * 1e-9;
  std::ifstream file(metricsFile);
  for (std::string line; std::getline(file, line) && !file.eof();) {
    if (line.find("\"devices\"") == std::string::npos)
      continue;
    const nlohmann::json row = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!row.is_object() || !row.contains("devices") || !row["devices"].is_array())
      continue;
    out.devices.clear();
    for (const nlohmann::json &name : row["devices"])
      if (name.is_string())
        out.devices.push_back(name.get<std::string>());
  }
  return out;
}

void zorse::run::describeMemoryLeft(const Options &o) {
  if (o.memoryInterval == 0 || o.quiet)
    return;
  if (const auto memory = findMemoryCheckpoints(o.memoryDirectory, o.checkpointDirectory);
      memory && memory->bytes > 0)
    fprintf(stderr,
            "note: %s of checkpoints in memory are kept in %s for --resume; remove the folder if "
            "you do not resume\n",
            bytesText(memory->bytes).c_str(), memory->folder.c_str());
}
