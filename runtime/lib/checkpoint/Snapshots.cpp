#include "zorse/runtime/Checkpoint.h"

#include "AsyncCheckpointWriter.h"
#include "Directories.h"
#include "Json.h"
#include "Resume.h"
#include "StateReaders.h"
#include "memory/MemoryCheckpointWriter.h"
#include "memory/MemoryHoldings.h"

#include <algorithm>
#include <cerrno>
#include <sstream>

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
  Result<Claim> token = claimDirectory(storage, options.directory, generation);
  if (token.failed())
    return token.error();
  return std::to_string(token->generation) + " " + token->ownerId;
}

/// A checkpoint from which a run may resume.
struct Candidate {
  MemoryStep of;
  std::string name; ///< of the directory; empty: it is in memory

  std::string text() const {
    return name.empty() ? "step " + std::to_string(of.step) + " of generation " +
                              std::to_string(of.generation) + " in memory"
                        : name;
  }
};

/// What the ranks found in a candidate.
struct Verdicts {
  std::string refused, damaged;
};

/// Sends the complete directories of rank 0 to all ranks.
Result<std::vector<Candidate>> directories(ProcessGroup &group, CheckpointStorage &storage,
                                           const std::string &directory) {
  Result<std::string> mine = std::string();
  if (group.rank() == 0) {
    Result<std::vector<CheckpointDirectory>> found = listCheckpoints(storage, directory);
    if (found.failed())
      mine = found.error();
    else
      for (const CheckpointDirectory &entry : *found)
        if (entry.complete)
          *mine += std::to_string(entry.generation) + " " + std::to_string(entry.step) + " " +
                   entry.name + "\n";
  }
  Result<std::string> list = fromRankZero(group, "checkpoints to resume from", mine);
  if (list.failed())
    return list.error();
  std::vector<Candidate> out;
  std::istringstream lines(*list);
  for (Candidate one; lines >> one.of.generation >> one.of.step >> one.name;)
    out.push_back(one);
  return out;
}

/// Chooses the server of the next node to which this rank copies its state; none if there is only
/// one node. The ranks of a node take those of the next one in turn. Fails if a rank has a problem.
Result<std::optional<Endpoint>> chooseBuddy(const std::vector<std::string> &said, uint32_t self) {
  std::vector<std::string> nodes;               // in the order of their first ranks
  std::vector<std::vector<Endpoint>> endpoints; // of their ranks
  size_t ownNode = 0, ownPlace = 0;
  for (uint32_t rank = 0; rank < said.size(); ++rank) {
    const json heard = json::parse(said[rank], nullptr, false);
    std::string problem, node;
    uint64_t port = 0;
    Endpoint endpoint;
    JsonFields fields(heard, "the answer", problem);
    std::string theirs;
    fields.text("problem", theirs);
    fields.text("node", node);
    fields.text("host", endpoint.host);
    fields.number("port", port, UINT16_MAX);
    endpoint.port = uint16_t(port);
    if (!problem.empty() || !theirs.empty())
      return userError("rank " + std::to_string(rank) + ": " + (theirs.empty() ? problem : theirs));
    const auto found = std::find(nodes.begin(), nodes.end(), node);
    const size_t place = size_t(found - nodes.begin());
    if (found == nodes.end()) {
      nodes.push_back(node);
      endpoints.emplace_back();
    }
    if (rank == self) {
      ownNode = place;
      ownPlace = endpoints[place].size();
    }
    endpoints[place].push_back(endpoint);
  }
  if (nodes.size() < 2)
    return std::optional<Endpoint>();
  const std::vector<Endpoint> &next = endpoints[(ownNode + 1) % nodes.size()];
  const Endpoint &chosen = next[ownPlace % next.size()];
  return chosen.port == 0 ? std::optional<Endpoint>() : std::optional(chosen);
}

} // namespace

class CheckpointManager::Implementation {
public:
  Implementation(Executor &executor, const Bundle &bundle, ProcessGroup &group,
                 const CheckpointOptions &options, const RunConfig &runConfig)
      : executor(executor), bundle(bundle), group(group), options(options), runConfig(runConfig),
        readers([this](uint32_t device) { this->executor.releaseState(device); }) {}

  ~Implementation() {
    if (options.reported)
      options.reported->close();
  }

  Status openMemory();
  Result<std::vector<Candidate>> candidates();
  CheckpointStatus load(const Candidate &candidate, const std::map<uint32_t, uint64_t> &frozen,
                        bool allowChange);
  Result<Verdicts> exchangeVerdicts(const Candidate &candidate, const CheckpointStatus &verdict);

  Executor &executor;
  const Bundle &bundle;
  ProcessGroup &group;
  CheckpointOptions options;
  RunConfig runConfig;
  std::shared_ptr<CheckpointStorage> storage;
  StateReaders readers;
  std::unique_ptr<AsyncCheckpointWriter> writer;
  std::unique_ptr<MemoryStore> store;             ///< null: no checkpoints in memory
  std::unique_ptr<MemoryServer> server;           ///< null: all ranks are on one node
  std::unique_ptr<MemoryCheckpointWriter> memory; ///< null: no checkpoints in memory
  MemoryHoldings holdings;
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
  Claim mine;
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
      {executor, bundle, group, options, runConfig, made->storage, fence,
       [readers = &made->readers](uint32_t device) { readers->release(device); }});
  if (writer.failed())
    return writer.error();
  made->writer = std::move(*writer);
  if (Status status = made->openMemory(); status.failed())
    return status;
  return std::unique_ptr<CheckpointManager>(new CheckpointManager(std::move(made)));
}

/// Opens the store of this node. If a rank cannot, the run continues without checkpoints in memory.
Status CheckpointManager::Implementation::openMemory() {
  if (options.memoryDirectory.empty())
    return Status::success();
  Result<MemoryStore> opened = MemoryStore::open(options.memoryDirectory, options.directory);
  std::string problem = opened.failed() ? opened.message() : "";
  if (!opened.failed())
    store = std::make_unique<MemoryStore>(std::move(*opened));
  if (store && !options.memoryPeers.listenAddress.empty() && group.size() > 1) {
    Result<std::unique_ptr<MemoryServer>> started =
        MemoryServer::start(*store, options.memoryPeers);
    if (started.failed())
      problem = started.message();
    else
      server = std::move(*started);
  }
  const Endpoint own = server ? server->endpoint() : Endpoint();
  const json said = {{"problem", problem},
                     {"node", store ? store->id() : ""},
                     {"host", own.host},
                     {"port", own.port}};
  Result<std::vector<std::string>> all = group.allGatherBytes(
      "memory checkpoint store", said.dump(-1, ' ', false, json::error_handler_t::replace));
  if (all.failed())
    return all.error();
  Result<std::optional<Endpoint>> buddy = chooseBuddy(*all, group.rank());
  if (buddy.failed()) {
    server.reset();
    store.reset();
    if (options.warn)
      options.warn("no checkpoints in memory: " + buddy.message());
    return Status::success();
  }
  auto first = [this](uint64_t step) {
    if (group.rank() == 0)
      noteProgress(*storage, options.directory, group.generation(), step);
  };
  memory = std::make_unique<MemoryCheckpointWriter>(MemoryCheckpointContext{
      executor, bundle, group, runConfig, options.memoryEvery, *store, readers, options.memoryPeers,
      options.memoryPeers.copies ? *buddy : std::nullopt, options.reported, first, options.warn});
  return Status::success();
}

/// Lists what the run may resume from, newest first.
Result<std::vector<Candidate>> CheckpointManager::Implementation::candidates() {
  Result<std::vector<Candidate>> out = directories(group, *storage, options.directory);
  if (out.failed() || !memory)
    return out;
  Result<std::vector<std::string>> held = group.allGatherBytes(
      "memory checkpoints",
      MemoryHoldings::describe(*store, server ? server->endpoint() : Endpoint()));
  if (held.failed())
    return held.error();
  holdings = MemoryHoldings(*held);
  std::vector<Candidate> all;
  for (const MemoryStep &step : holdings.coveredSteps())
    all.push_back({step, ""});
  all.insert(all.end(), out->begin(), out->end());
  // For the same step, memory comes before storage.
  std::stable_sort(all.begin(), all.end(),
                   [](const Candidate &a, const Candidate &b) { return b.of < a.of; });
  return all;
}

CheckpointStatus CheckpointManager::Implementation::load(const Candidate &candidate,
                                                         const std::map<uint32_t, uint64_t> &frozen,
                                                         bool allowChange) {
  Result<CheckpointReader> reader =
      candidate.name.empty()
          ? openMemoryCheckpoint(*store, candidate.of, holdings, options.memoryPeers)
          : openCheckpointDirectory(options.directory + "/" + candidate.name, storage);
  return loadCheckpoint(reader, executor, bundle, runConfig, frozen, allowChange);
}

Result<Verdicts>
CheckpointManager::Implementation::exchangeVerdicts(const Candidate &candidate,
                                                    const CheckpointStatus &verdict) {
  json said = {{"kind", int(verdict.kind)}, {"text", verdict.text}};
  Result<std::vector<std::string>> all = group.allGatherBytes(
      "resume from " + candidate.text(), said.dump(-1, ' ', false, json::error_handler_t::replace));
  if (all.failed())
    return all.error();
  Verdicts out;
  for (uint32_t rank = 0; rank < all->size(); ++rank) {
    json heard = json::parse((*all)[rank], nullptr, false);
    if (heard.is_discarded())
      heard = nullptr;
    uint64_t kind = CheckpointStatus::Damaged;
    std::string text = "sent an unknown answer", problem;
    JsonFields fields(heard, "the verdict", problem);
    fields.number("kind", kind, CheckpointStatus::Refused);
    fields.text("text", text);
    if (kind == CheckpointStatus::Refused && out.refused.empty())
      out.refused = text;
    if (kind == CheckpointStatus::Damaged)
      out.damaged += (out.damaged.empty() ? "" : "; ") +
                     (group.size() > 1 ? "rank " + std::to_string(rank) + ": " : "") + text;
  }
  return out;
}

Result<std::optional<ResumePoint>> CheckpointManager::resume(bool allowChange, std::string *note) {
  Implementation &my = *implementation_;
  Result<std::vector<Candidate>> list = my.candidates();
  if (list.failed())
    return list.error();
  Result<std::map<uint32_t, uint64_t>> frozen =
      list->empty() ? std::map<uint32_t, uint64_t>() : frozenHashes(my.executor, my.bundle);
  if (frozen.failed())
    return frozen.error();
  std::string passed;
  std::set<std::string> damaged;
  for (const Candidate &candidate : *list) {
    const CheckpointStatus verdict = my.load(candidate, *frozen, allowChange);
    Result<Verdicts> all = my.exchangeVerdicts(candidate, verdict);
    if (all.failed())
      return all.error();
    if (!all->refused.empty())
      return userError(all->refused);
    if (!all->damaged.empty()) {
      damaged.insert(candidate.name);
      passed += (passed.empty() ? "passed over: " : "\npassed over: ") + all->damaged;
      continue;
    }
    if (note)
      *note = passed + (passed.empty() || verdict.note.empty() ? "" : "\n") + verdict.note;
    my.writer->startAt(verdict.step, verdict.consumedSamples, /*stored=*/!candidate.name.empty(),
                       std::move(damaged));
    if (my.memory)
      my.memory->startAt(verdict.step, verdict.consumedSamples,
                         candidate.name.empty() ? std::optional(candidate.of) : std::nullopt);
    return std::optional<ResumePoint>(ResumePoint{
        verdict.step, candidate.name.empty() ? "" : my.options.directory + "/" + candidate.name,
        verdict.consumedSamples});
  }
  if (!damaged.empty())
    return userError(my.options.directory + ": none of its " + std::to_string(damaged.size()) +
                     (damaged.size() == 1 ? " checkpoint" : " checkpoints") + " can be read:\n" +
                     passed + "\nto start from scratch, give another directory");
  return std::optional<ResumePoint>();
}

StateObserver *CheckpointManager::beginIfDue(uint64_t step, bool last) {
  Implementation &my = *implementation_;
  StateObserver *storage = my.writer->due(step, last);
  return my.memory && !last ? my.memory->due(step, storage) : storage;
}
void CheckpointManager::saveNow(uint64_t step) { implementation_->writer->saveNow(step); }
CheckpointManager::Counts CheckpointManager::counts() const {
  return implementation_->writer->counts();
}
CheckpointManager::MemoryCounts CheckpointManager::memoryCounts() const {
  return implementation_->memory ? implementation_->memory->counts() : MemoryCounts();
}
void CheckpointManager::removeMemory() {
  if (implementation_->store)
    implementation_->store->remove();
}
uint64_t CheckpointManager::memory() const { return implementation_->writer->memory(); }
Status CheckpointManager::finish() { return implementation_->writer->finish(); }
