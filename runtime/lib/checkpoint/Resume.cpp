#include "Resume.h"

#include "AsyncCheckpointWriter.h"
#include "Directories.h"
#include "Identity.h"
#include "Layout.h"
#include "zorse/runtime/State.h"

#include "zorse/Bundle/ContentHash.h"

#include <algorithm>
#include <set>

using namespace zorse;
using namespace zorse::runtime;

namespace {

/// Elements [begin, end) of a parameter (or moment) that a device needs, and their location.
struct RequiredRange {
  int64_t begin, end;
  StoredType type;
  uint32_t device;
  bundle::Region region;
};

using Needs = std::map<std::pair<uint32_t, int32_t>,
                       std::vector<RequiredRange>>; ///< by parameter of the checkpoint and moment

class Loader {
public:
  Loader(const CheckpointReader &checkpoint, Executor &executor, const Bundle &bundle)
      : checkpoint_(checkpoint), index_(checkpoint.index()), executor_(executor), bundle_(bundle) {}

  /// The parameters of the checkpoint must be those of the bundle, even if other differences are
  /// allowed.
  std::string compareParameters() {
    std::map<std::string, uint32_t> known;
    for (uint32_t p = 0; p < index_.parameters.size(); ++p)
      known[index_.parameters[p].name] = p;
    const std::vector<CheckpointParameter> &ours = parameters_;
    std::string missing, extra, different;
    std::set<std::string> names;
    auto add = [](std::string &list, const std::string &what) {
      list += (list.empty() ? "" : ", ") + what;
    };
    for (uint32_t p = 0; p < ours.size(); ++p) {
      names.insert(ours[p].name);
      auto found = known.find(ours[p].name);
      if (found == known.end()) {
        if (ours[p].trainable)
          add(missing, "'" + ours[p].name + "'");
        continue;
      }
      const CheckpointParameter &theirs = index_.parameters[found->second];
      ours_[p] = found->second;
      if (theirs.storedShape() != ours[p].storedShape())
        add(different, "'" + ours[p].name + "' is " + shapeText(theirs.storedShape()) +
                           " in the checkpoint, " + shapeText(ours[p].storedShape()) + " here");
      else if (theirs.trainable != ours[p].trainable)
        add(different, "'" + ours[p].name + "' is " +
                           (theirs.trainable ? "trained in the checkpoint, frozen here"
                                             : "frozen in the checkpoint, trained here"));
    }
    for (const CheckpointParameter &parameter : index_.parameters)
      if (parameter.trainable && !names.count(parameter.name))
        add(extra, "'" + parameter.name + "'");
    std::string text;
    for (const auto &[what, list] :
         {std::pair<const char *, std::string &>{"not in the checkpoint: ", missing},
          {"not in this bundle: ", extra},
          {"", different}})
      if (!list.empty())
        text += (text.empty() ? "" : "; ") + (what + list.substr(0, 400)) +
                (list.size() > 400 ? " ..." : "");
    return text;
  }

  /// Frozen parameters that differ from those of the checkpoint's run.
  std::vector<Difference> compareFrozen(const std::map<uint32_t, uint64_t> &hashes) const {
    std::vector<Difference> out;
    for (const auto &[p, hash] : hashes) {
      auto found = ours_.find(p);
      if (found == ours_.end())
        continue;
      const CheckpointParameter &theirs = index_.parameters[found->second];
      if (!theirs.trainable && theirs.hash && theirs.hash != hash &&
          theirs.type == parameters_[p].type)
        out.push_back({"frozen parameter '" + theirs.name + "'", "other numbers",
                       "those of the bundle or of --load-weights"});
    }
    return out;
  }

  Status load(bool withMoments) {
    Needs needs;
    if (Status status = gatherNeeds(withMoments, needs); status.failed())
      return status;
    if (Status status = loadPermuted(needs); status.failed())
      return status;
    Status written;
    for (size_t f = 0; f < index_.files.size(); ++f) {
      const std::vector<CheckpointShard> &slices = index_.files[f].shards;
      std::vector<size_t> wanted;
      for (size_t s = 0; s < slices.size(); ++s)
        if (needed(needs, slices[s], [](const RequiredRange &, int64_t, int64_t) {}))
          wanted.push_back(s);
      if (wanted.empty())
        continue;
      auto take = [&](const CheckpointShard &slice, const std::byte *data) {
        needed(needs, slice, [&](const RequiredRange &need, int64_t begin, int64_t end) {
          Status status = writeElements(executor_, need.device, need.region,
                                        uint64_t(begin - need.begin) * bytesOf(need.type),
                                        data + uint64_t(begin - slice.begin) * bytesOf(slice.type),
                                        slice.type, need.type, end - begin);
          if (status.failed() && written.succeeded())
            written = status;
        });
      };
      if (Status status = checkpoint_.read(f, wanted, take); status.failed() || written.failed())
        return status.failed() ? status : written;
    }
    abi::OptimizerStep step = index_.optimizerStep;
    if (!withMoments)
      step.updates = 0;
    if (step.lossScale == 0 || index_.precision != bundle_.precision) { // the scale of another type
                                                                        // cannot be used
      step.lossScale = bundle_.summary.training().loss_scale();
      step.goodSteps = step.overflows = 0;
    }
    return writeOptimizerStep(executor_, bundle_, step);
  }

private:
  static std::string shapeText(const std::vector<int64_t> &shape) {
    std::string text;
    for (int64_t dimension : shape)
      text += (text.empty() ? "" : "x") + std::to_string(dimension);
    return text.empty() ? "a scalar" : text;
  }

  /// Returns the optimizer state of the checkpoint that continues one of a parameter here; none: it
  /// starts from scratch. If another update rule applies, only the moving average continues, which
  /// is the last state.
  std::optional<int32_t> stateIn(uint32_t theirs, const CheckpointShard &ours) const {
    const std::vector<CheckpointState> &here = parameters_[ours.parameter].states,
                                       &there = index_.parameters[theirs].states;
    auto alike = [](const CheckpointState &a, const CheckpointState &b) {
      return a.entries == b.entries && isFloat(a.type) == isFloat(b.type);
    };
    if (std::equal(here.begin(), here.end(), there.begin(), there.end(), alike))
      return ours.moment;
    const bool average = bundle_.summary.training().ema_decay() > 0 &&
                         ours.moment + 1 == int32_t(here.size());
    return average && !there.empty() ? std::optional(int32_t(there.size()) - 1) : std::nullopt;
  }

  /// Collects the needed elements. State without a source is cleared.
  Status gatherNeeds(bool withMoments, Needs &required) {
    for (uint32_t device : executor_.devices()) {
      DeviceLayout layout = layoutOf(bundle_, device);
      for (const ShardLayout &laid : layout.slices) {
        auto found = ours_.find(laid.slice.parameter);
        const std::optional<int32_t> state = found == ours_.end()    ? std::nullopt
                                             : laid.slice.moment < 0 ? laid.slice.moment
                                             : withMoments ? stateIn(found->second, laid.slice)
                                                           : std::nullopt;
        if (state)
          required[{found->second, *state}].push_back(
              {laid.slice.begin, laid.slice.end, laid.slice.type, device, laid.region});
        else if (Status status = executor_.clear(device, laid.region); status.failed())
          return status;
      }
    }
    for (auto &[key, list] : required)
      std::sort(list.begin(), list.end(),
                [](const RequiredRange &a, const RequiredRange &b) { return a.begin < b.begin; });
    return Status::success();
  }

  /// Loads the tensors that the checkpoint has in another layout, as a run with groups of devices
  /// writes them, and removes them from the needs.
  Status loadPermuted(Needs &required) {
    for (const auto &[own, their] : ours_) {
      const CheckpointParameter &ours = parameters_[own], &theirs = index_.parameters[their];
      if (theirs.shape == ours.shape && theirs.permutation == ours.permutation)
        continue;
      for (int32_t moment = -1; moment < int32_t(theirs.states.size()); ++moment) {
        const auto need = required.find({their, moment});
        if (need == required.end())
          continue;
        if (Status status = loadPermuted(ours, their, moment, need->second); status.failed())
          return status;
        required.erase(need);
      }
    }
    return Status::success();
  }

  Status loadPermuted(const CheckpointParameter &ours, uint32_t their, int32_t moment,
                      const std::vector<RequiredRange> &ranges) {
    const CheckpointParameter &theirs = index_.parameters[their];
    const size_t rank = ours.shape.size();
    // Positions of the dimensions of the ONNX file in the checkpoint, and ours in the checkpoint.
    std::vector<int64_t> position(rank), order(rank);
    for (size_t d = 0; d < rank; ++d)
      position[theirs.permutation.empty() ? d : size_t(theirs.permutation[d])] = int64_t(d);
    for (size_t d = 0; d < rank; ++d)
      order[d] = position[ours.permutation.empty() ? d : size_t(ours.permutation[d])];
    const StoredType type = ranges.front().type;
    const size_t size = bytesOf(type);
    std::vector<std::byte> read(size_t(theirs.elements()) * size), permuted(read.size());
    if (Status status = checkpoint_.readTensor(their, moment, type, read.data()); status.failed())
      return status;
    permuteElements(read.data(), permuted.data(), size, theirs.shape, order);
    for (const RequiredRange &range : ranges)
      if (Status status = writeElements(executor_, range.device, range.region, 0,
                                        permuted.data() + size_t(range.begin) * size, type,
                                        range.type, range.end - range.begin);
          status.failed())
        return status;
    return Status::success();
  }

  /// Calls `visit` for every needed part of the slice. Returns false if no part is needed.
  template <typename Visit>
  static bool needed(const Needs &needs, const CheckpointShard &slice, const Visit &visit) {
    auto found = needs.find({slice.parameter, slice.moment});
    if (found == needs.end())
      return false;
    bool any = false;
    // Needs of different devices are disjoint and sorted, so their ends are also sorted.
    auto need = std::partition_point(found->second.begin(), found->second.end(),
                                     [&](const RequiredRange &n) { return n.end <= slice.begin; });
    for (; need != found->second.end() && need->begin < slice.end; ++need) {
      visit(*need, std::max(need->begin, slice.begin), std::min(need->end, slice.end));
      any = true;
    }
    return any;
  }

  const CheckpointReader &checkpoint_;
  const CheckpointIndex &index_;
  Executor &executor_;
  const Bundle &bundle_;
  const std::vector<CheckpointParameter> parameters_ = checkpointParameters(bundle_);
  std::map<uint32_t, uint32_t> ours_; ///< index in the bundle by index in the checkpoint
};

CheckpointStatus unusable(CheckpointStatus::Kind kind, std::string why) {
  CheckpointStatus verdict;
  verdict.kind = kind;
  verdict.text = std::move(why);
  return verdict;
}

} // namespace

Result<CheckpointReader>
zorse::runtime::openCheckpointDirectory(const std::string &path,
                                        std::shared_ptr<CheckpointStorage> storage) {
  Result<CheckpointReader> checkpoint = CheckpointReader::open(path, std::move(storage));
  if (checkpoint.failed())
    return checkpoint;
  if (std::string expected =
          directoryName(checkpoint->index().step, checkpoint->index().generation);
      path.substr(path.rfind('/') + 1) != expected)
    return userError(path + ": its index is that of '" + expected + "'");
  return checkpoint;
}

CheckpointStatus zorse::runtime::loadCheckpoint(const Result<CheckpointReader> &checkpoint,
                                                Executor &executor, const Bundle &bundle,
                                                const RunConfig &runConfig,
                                                const std::map<uint32_t, uint64_t> &frozenHashes,
                                                bool allowChange) {
  CheckpointStatus verdict;
  if (checkpoint.failed())
    return unusable(CheckpointStatus::Damaged, checkpoint.message());
  const CheckpointIndex &index = checkpoint->index();
  const std::string &path = checkpoint->path();
  Loader loader(*checkpoint, executor, bundle);
  if (std::string problem = loader.compareParameters(); !problem.empty())
    return unusable(CheckpointStatus::Refused,
                    path + ": is a checkpoint of another model: " + problem);

  std::vector<Difference> found = differences(index.runConfig, runConfig);
  if (index.precision != bundle.precision)
    found.push_back({"precision", index.precision, bundle.precision});
  for (const Difference &difference : loader.compareFrozen(frozenHashes))
    found.push_back(difference);
  bool moments = sameMoments(index.runConfig.training, runConfig.training);
  if (!found.empty()) {
    if (!allowChange)
      return unusable(CheckpointStatus::Refused,
                      path + ": this run would continue differently from the checkpoint's run:" +
                          listed(found) +
                          "\ngive the options of the checkpoint's run, or --allow-config-change to "
                          "continue with these");
    verdict.note =
        path + ": continues with changes that --allow-config-change permits:" + listed(found) +
        (moments ? "" : "\n  the optimizer starts from scratch: moments and its step are 0");
  }
  if (std::string text = explainDecay(index.runConfig, runConfig, index.step); !text.empty())
    verdict.note += (verdict.note.empty() ? "" : "\n") + text;
  if (!index.runConfig.matrices.empty() && index.runConfig.matrices != runConfig.matrices)
    verdict.note += (verdict.note.empty() ? "" : "\n") + path +
                    ": continues as the checkpoint's run would have, except for rounding: matrices "
                    "were multiplied by " +
                    index.runConfig.matrices + ", here by " +
                    (runConfig.matrices.empty() ? "something else" : runConfig.matrices) +
                    "; ZORSE_GEMM=openblas or ZORSE_GEMM=onednn chooses the library";
  if (!bundle::comparable(index.runConfig.model, runConfig.model))
    verdict.note += (verdict.note.empty() ? "" : "\n") + path +
                    ": was written with a version of the compiler that represented graphs "
                    "differently; only the parameters show that the model is the same";
  if (Status status = loader.load(moments); status.failed())
    return unusable(CheckpointStatus::Damaged, status.message());
  verdict.step = index.step;
  verdict.consumedSamples = index.consumedSamples;
  return verdict;
}

Result<uint64_t> zorse::runtime::loadCheckpointParameters(const std::string &path,
                                                          Executor &executor,
                                                          const Bundle &bundle) {
  Result<CheckpointReader> checkpoint = CheckpointReader::open(path);
  if (checkpoint.failed())
    return checkpoint.error();
  Loader loader(*checkpoint, executor, bundle);
  if (std::string problem = loader.compareParameters(); !problem.empty())
    return userError(path + ": is a checkpoint of another model: " + problem);
  Result<std::map<uint32_t, uint64_t>> hashes = frozenHashes(executor, bundle);
  if (hashes.failed())
    return hashes.error();
  if (std::vector<Difference> found = loader.compareFrozen(*hashes); !found.empty())
    return userError(path + ": its run had other frozen parameters than this bundle:" +
                     listed(found) + "\ngive the --load-weights of its run, which has them");
  if (Status status = loader.load(/*withMoments=*/false); status.failed())
    return status;
  return checkpoint->index().step;
}
