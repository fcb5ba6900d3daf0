#include "MemoryHoldings.h"

#include "../Json.h"
#include "../ShardSource.h"

#include <algorithm>
#include <filesystem>
#include <functional>

using namespace zorse::runtime;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

const std::vector<Endpoint> kNobody;

/// Reads from the slots of this node and from the servers of others.
class NodesSource final : public ShardSource {
public:
  NodesSource(MemoryStep step, const MemoryHoldings &holdings, CheckpointOptions::Peers options)
      : step_(step), holdings_(holdings), options_(std::move(options)) {}

  std::map<std::string, MemoryStore::View> local; ///< by file

  Status
  read(const CheckpointIndex &, const CheckpointFile &file, const std::vector<size_t> &wanted,
       const std::function<void(const CheckpointShard &, const std::byte *)> &take) const override {
    const auto view = local.find(file.name);
    if (view == local.end())
      return readFromPeer(file, wanted, take);
    for (size_t i : wanted)
      take(file.shards[i], view->second.state() + (file.shards[i].offset - file.headerBytes));
    return view->second.isUnchanged() ? Status::success()
                                      : Status(userError(view->second.mapped.path() +
                                                         ": was overwritten while it was read"));
  }

private:
  Status
  readFromPeer(const CheckpointFile &file, const std::vector<size_t> &wanted,
               const std::function<void(const CheckpointShard &, const std::byte *)> &take) const {
    std::vector<MemoryPeer::Range> ranges;
    ranges.reserve(wanted.size());
    for (size_t i : wanted)
      ranges.push_back({file.shards[i].offset - file.headerBytes, file.shards[i].bytes()});
    Status last = userError("no node holds the state of device " + file.device + " after step " +
                            std::to_string(step_.step));
    for (const Endpoint &holder : holdings_.holdersOf(step_, file.name)) {
      Result<MemoryPeer *> peer = connection(holder);
      last = peer.failed() ? Status(peer.error())
                           : (*peer)->read(step_, file.name, ranges,
                                           [&](size_t range, const std::byte *data) {
                                             take(file.shards[wanted[range]], data);
                                           });
      if (last.succeeded())
        return last;
    }
    return last;
  }

  Result<MemoryPeer *> connection(const Endpoint &endpoint) const {
    std::unique_ptr<MemoryPeer> &peer = peers_[{endpoint.host, endpoint.port}];
    if (!peer) {
      Result<std::unique_ptr<MemoryPeer>> connected = MemoryPeer::connect(endpoint, options_);
      if (connected.failed())
        return connected.error();
      peer = std::move(*connected);
    }
    return peer.get();
  }

  const MemoryStep step_;
  const MemoryHoldings &holdings_;
  const CheckpointOptions::Peers options_;
  mutable std::map<std::pair<std::string, uint16_t>, std::unique_ptr<MemoryPeer>> peers_;
};

/// The layout of a generation, of this node or of another one.
Result<CheckpointIndex> layoutOf(const MemoryStore &store, uint64_t generation,
                                 const MemoryHoldings &holdings,
                                 const CheckpointOptions::Peers &options) {
  Result<std::string> text = store.layoutText(generation);
  for (const Endpoint &holder : holdings.holdersOf(generation)) {
    if (!text.failed())
      break;
    Result<std::unique_ptr<MemoryPeer>> peer = MemoryPeer::connect(holder, options);
    text = peer.failed() ? Result<std::string>(peer.error()) : (*peer)->readLayout(generation);
  }
  if (text.failed())
    return text.error();
  return parseCheckpointIndex(store.path() + ": the layout of generation " +
                                  std::to_string(generation),
                              text->data(), text->size());
}

} // namespace

std::string MemoryHoldings::describe(const MemoryStore &store, const Endpoint &server) {
  json held = json::array(), files = json::object();
  std::set<uint64_t> generations;
  for (const MemoryStore::Held &slot : store.list()) {
    held.push_back({{"generation", slot.header.of.generation},
                    {"step", slot.header.of.step},
                    {"file", slot.header.file},
                    {"consumed_samples", slot.header.consumedSamples}});
    if (const abi::OptimizerStep &step = slot.header.optimizerStep; slot.header.hasOptimizerStep)
      held.back()["optimizer"] = {step.updates, step.lossScale, step.goodSteps, step.overflows};
    generations.insert(slot.header.of.generation);
  }
  for (uint64_t generation : generations) {
    const Result<std::string> text = store.layoutText(generation);
    const Result<CheckpointIndex> layout =
        text.failed() ? Result<CheckpointIndex>(text.error())
                      : parseCheckpointIndex(store.path(), text->data(), text->size());
    if (layout.failed())
      continue;
    json &names = files[std::to_string(generation)] = json::array();
    for (const CheckpointFile &file : layout->files)
      names.push_back(file.name);
  }
  return json{{"host", server.host}, {"port", server.port}, {"held", held}, {"files", files}}.dump(
      -1, ' ', false, json::error_handler_t::replace);
}

MemoryHoldings::MemoryHoldings(const std::vector<std::string> &descriptions) {
  for (const std::string &text : descriptions) {
    const json root = json::parse(text, nullptr, false);
    std::string problem;
    JsonFields fields(root, "the holdings", problem);
    Endpoint server;
    uint64_t port = 0;
    fields.text("host", server.host);
    fields.number("port", port, UINT16_MAX);
    server.port = uint16_t(port);
    const json *files = fields.find("files"), *held = fields.list("held");
    if (!fields.good() || !files->is_object())
      continue;
    for (const auto &[generation, names] : files->items()) {
      const uint64_t number = std::strtoull(generation.c_str(), nullptr, 10);
      layouts_[number].push_back(server);
      for (const json &name : names)
        if (name.is_string())
          files_[number].insert(name.get<std::string>());
    }
    for (const json &slot : *held) {
      JsonFields one(slot, "a slot", problem);
      MemoryStep step;
      std::string file;
      one.number("generation", step.generation);
      one.number("step", step.step);
      one.text("file", file);
      uint64_t consumed = 0;
      one.number("consumed_samples", consumed);
      if (!one.good())
        continue;
      held_[step][file].push_back(server);
      facts_[step].consumedSamples = consumed;
      constexpr size_t kNumbers = 4;
      if (const auto found = slot.find("optimizer");
          found != slot.end() && found->is_array() && found->size() == kNumbers &&
          std::all_of(found->begin(), found->end(), [](const json &n) { return n.is_number(); }))
        facts_[step].optimizerStep = {(*found)[0].get<double>(), (*found)[1].get<double>(),
                                      (*found)[2].get<double>(), (*found)[3].get<double>()};
    }
  }
}

std::vector<MemoryStep> MemoryHoldings::coveredSteps() const {
  std::vector<MemoryStep> out;
  for (auto step = held_.rbegin(); step != held_.rend(); ++step) {
    const auto needed = files_.find(step->first.generation);
    if (needed != files_.end() &&
        std::all_of(needed->second.begin(), needed->second.end(),
                    [&](const std::string &file) { return step->second.count(file) > 0; }))
      out.push_back(step->first);
  }
  return out;
}

MemoryHoldings::Facts MemoryHoldings::factsOf(const MemoryStep &step) const {
  const auto found = facts_.find(step);
  return found == facts_.end() ? Facts() : found->second;
}

const std::vector<Endpoint> &MemoryHoldings::holdersOf(const MemoryStep &step,
                                                       const std::string &file) const {
  const auto files = held_.find(step);
  if (files == held_.end())
    return kNobody;
  const auto found = files->second.find(file);
  return found == files->second.end() ? kNobody : found->second;
}

const std::vector<Endpoint> &MemoryHoldings::holdersOf(uint64_t generation) const {
  const auto found = layouts_.find(generation);
  return found == layouts_.end() ? kNobody : found->second;
}

Result<CheckpointReader>
zorse::runtime::openMemoryCheckpoint(const MemoryStore &store, const MemoryStep &step,
                                     const MemoryHoldings &holdings,
                                     const CheckpointOptions::Peers &options) {
  Result<CheckpointIndex> index = layoutOf(store, step.generation, holdings, options);
  if (index.failed())
    return index.error();
  index->step = step.step;
  index->generation = step.generation;
  index->consumedSamples = holdings.factsOf(step).consumedSamples;
  index->optimizerStep = holdings.factsOf(step).optimizerStep;
  auto source = std::make_shared<NodesSource>(step, holdings, options);
  for (const CheckpointFile &file : index->files) {
    Result<MemoryStore::View> view = store.view(step, file.name);
    if (view.failed())
      continue; // another node holds it
    if (view->header.stateBytes != file.bytes - file.headerBytes)
      return userError(view->mapped.path() + ": has " + std::to_string(view->header.stateBytes) +
                       " bytes, expected " + std::to_string(file.bytes - file.headerBytes));
    source->local.emplace(file.name, std::move(*view));
  }
  return CheckpointReader::of(store.path(), std::move(*index), std::move(source));
}

std::optional<MemoryCheckpoints>
zorse::runtime::findMemoryCheckpoints(const std::string &root,
                                      const std::string &checkpointDirectory) {
  const std::optional<MemoryStore> store = MemoryStore::find(root, checkpointDirectory);
  if (!store)
    return std::nullopt;
  MemoryCheckpoints out;
  out.folder = store->path();
  std::error_code none;
  for (const fs::directory_entry &entry : fs::directory_iterator(store->path(), none))
    if (const uint64_t bytes = fs::file_size(entry.path(), none); !none)
      out.bytes += bytes;
  if (const std::vector<MemoryStep> steps =
          MemoryHoldings({MemoryHoldings::describe(*store, Endpoint())}).coveredSteps();
      !steps.empty())
    out.step = steps.front().step;
  return out;
}
