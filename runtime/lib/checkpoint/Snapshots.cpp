#include "zorse/runtime/Checkpoint.h"

#include "AsyncCheckpointWriter.h"
#include "Directories.h"
#include "Json.h"
#include "Resume.h"

#include <cerrno>

using namespace zorse::runtime;
using nlohmann::json;

namespace {

/// Sends a text or an error from rank 0 to all ranks.
Result<std::string> fromRankZero(ProcessGroup &group, const std::string &name,
                                 const Result<std::string> &mine) {
  json said = json::object();
  if (group.rank() == 0)
    said[mine.failed() ? "error" : "value"] = mine.failed() ? mine.message() : *mine;
  Result<std::vector<std::string>> all =
      group.allGatherBytes(name, said.dump(-1, ' ', false, json::error_handler_t::replace));
  if (all.failed())
    return all.error();
  json heard = json::parse((*all)[0], nullptr, false);
  if (heard.is_object() && heard.contains("error") && heard["error"].is_string())
    return userError(heard["error"].get<std::string>());
  if (!heard.is_object() || !heard.contains("value") || !heard["value"].is_string())
    return internalError("rank 0 has not answered the request (" + name + ")");
  return heard["value"].get<std::string>();
}

Result<std::string> takeDirectory(CheckpointStorage &storage, const CheckpointOptions &options,
                                  uint64_t generation) {
  if (!options.resuming) {
    Result<std::vector<CheckpointDirectory>> found = listCheckpoints(storage, options.directory);
    if (found.failed())
      return found.error();
    for (const CheckpointDirectory &directory : *found)
      if (directory.complete)
        return userError(options.directory +
                         ": holds checkpoints of an earlier run (the newest is " + directory.name +
                         "): give --resume to continue from it, or another directory");
  }
  Result<FencingToken> token = takeOwnership(storage, options.directory, generation);
  if (token.failed())
    return token.error();
  return std::to_string(token->generation) + " " + token->ownerId;
}

} // namespace

class CheckpointManager::Implementation {
public:
  Implementation(Executor &executor, const Bundle &bundle, ProcessGroup &group,
                 const CheckpointOptions &options, const RunConfig &runConfig)
      : executor(executor), bundle(bundle), group(group), options(options), runConfig(runConfig) {}

  Executor &executor;
  const Bundle &bundle;
  ProcessGroup &group;
  CheckpointOptions options;
  RunConfig runConfig;
  std::shared_ptr<CheckpointStorage> storage;
  std::unique_ptr<AsyncCheckpointWriter> writer;
};

CheckpointManager::CheckpointManager(std::unique_ptr<Implementation> implementation)
    : implementation_(std::move(implementation)) {}
CheckpointManager::~CheckpointManager() = default;

Result<std::unique_ptr<CheckpointManager>>
CheckpointManager::open(Executor &executor, const Bundle &bundle, ProcessGroup &group,
                        const CheckpointOptions &given, const RunConfig &runConfig,
                        std::shared_ptr<CheckpointStorage> storage) {
  CheckpointOptions options = given;
  while (options.directory.size() > 1 && options.directory.back() == '/')
    options.directory.pop_back();
  if (options.directory.empty())
    return userError("--checkpoint-dir: expects a directory");
  auto made = std::make_unique<Implementation>(executor, bundle, group, options, runConfig);
  made->storage = storage ? std::move(storage) : makePosixStorage();

  Result<std::string> token =
      fromRankZero(group, "checkpoint directory",
                   group.rank() == 0 ? takeDirectory(*made->storage, options, group.generation())
                                     : std::string());
  if (token.failed())
    return token.error();
  FencingToken mine;
  mine.generation = group.generation();
  mine.ownerId = token->substr(token->find(' ') + 1);
  Fence fence(*made->storage, options.directory, mine);
  std::optional<CheckpointError> error = fence.check();
  std::string text =
      error ? error->text + (group.rank() > 0
                                 ? "; expected a directory that all ranks share, the same on each"
                                 : "")
            : "";
  Result<std::vector<std::string>> all = group.allGatherBytes("checkpoint directory seen", text);
  if (all.failed())
    return all.error();
  for (uint32_t rank = 0; rank < all->size(); ++rank)
    if (!(*all)[rank].empty())
      return userError(group.size() > 1 ? "rank " + std::to_string(rank) + ": " + (*all)[rank]
                                        : (*all)[rank]);

  Result<std::unique_ptr<AsyncCheckpointWriter>> writer = AsyncCheckpointWriter::create(
      {executor, bundle, group, options, runConfig, made->storage, fence});
  if (writer.failed())
    return writer.error();
  made->writer = std::move(*writer);
  return std::unique_ptr<CheckpointManager>(new CheckpointManager(std::move(made)));
}

Result<std::optional<ResumePoint>> CheckpointManager::resume(bool allowChange, std::string *note) {
  Implementation &my = *implementation_;
  Result<std::string> mine = std::string();
  if (my.group.rank() == 0) {
    Result<std::vector<CheckpointDirectory>> found =
        listCheckpoints(*my.storage, my.options.directory);
    if (found.failed())
      mine = found.error();
    else
      for (const CheckpointDirectory &directory : *found)
        if (directory.complete)
          *mine += directory.name + "\n";
  }
  Result<std::string> list = fromRankZero(my.group, "checkpoints to resume from", mine);
  if (list.failed())
    return list.error();

  Result<std::map<uint32_t, uint64_t>> frozen =
      list->empty() ? std::map<uint32_t, uint64_t>() : frozenHashes(my.executor, my.bundle);
  if (frozen.failed())
    return frozen.error();
  std::string passed;
  std::set<std::string> damaged;
  for (size_t begin = 0; begin < list->size();) {
    size_t end = list->find('\n', begin);
    std::string name = list->substr(begin, end - begin), path = my.options.directory + "/" + name;
    begin = end + 1;
    CheckpointStatus verdict = loadCheckpoint(path, my.storage, my.executor, my.bundle,
                                              my.runConfig, *frozen, allowChange);
    json said = {{"kind", int(verdict.kind)}, {"text", verdict.text}};
    Result<std::vector<std::string>> all = my.group.allGatherBytes(
        "resume from " + name, said.dump(-1, ' ', false, json::error_handler_t::replace));
    if (all.failed())
      return all.error();
    std::string bad, refused;
    for (uint32_t rank = 0; rank < all->size(); ++rank) {
      json heard = json::parse((*all)[rank], nullptr, false);
      if (heard.is_discarded())
        heard = nullptr;
      uint64_t kind = CheckpointStatus::Damaged;
      std::string text = "sent an unknown answer", problem;
      JsonFields fields(heard, "the verdict", problem);
      fields.number("kind", kind, CheckpointStatus::Refused);
      fields.text("text", text);
      if (kind == CheckpointStatus::Refused && refused.empty())
        refused = text;
      if (kind == CheckpointStatus::Damaged)
        bad += (bad.empty() ? "" : "; ") +
               (my.group.size() > 1 ? "rank " + std::to_string(rank) + ": " : "") + text;
    }
    if (!refused.empty())
      return userError(refused);
    if (bad.empty()) {
      if (note)
        *note = passed + (passed.empty() || verdict.note.empty() ? "" : "\n") + verdict.note;
      my.writer->startAt(verdict.step, verdict.consumedSamples, std::move(damaged));
      return std::optional<ResumePoint>(ResumePoint{verdict.step, path, verdict.consumedSamples});
    }
    damaged.insert(name);
    passed += (passed.empty() ? "passed over: " : "\npassed over: ") + bad;
  }
  if (!damaged.empty())
    return userError(my.options.directory + ": none of its " + std::to_string(damaged.size()) +
                     (damaged.size() == 1 ? " checkpoint" : " checkpoints") + " can be read:\n" +
                     passed + "\nto start from scratch, give another directory");
  return std::optional<ResumePoint>();
}

StateObserver *CheckpointManager::beginIfDue(uint64_t step, bool last) {
  return implementation_->writer->due(step, last);
}
void CheckpointManager::saveNow(uint64_t step) { implementation_->writer->saveNow(step); }
CheckpointManager::Counts CheckpointManager::counts() const {
  return implementation_->writer->counts();
}
uint64_t CheckpointManager::memory() const { return implementation_->writer->memory(); }
Status CheckpointManager::finish() { return implementation_->writer->finish(); }
