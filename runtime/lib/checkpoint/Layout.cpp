#include "Layout.h"

#include "Storage.h"

#include "zorse/Summary/StateLayout.h"
#include "zorse/runtime/Safetensors.h"

#include <algorithm>
#include <map>
#include <set>

using namespace zorse;
using namespace zorse::runtime;

namespace {

constexpr uint64_t kPiece = 16u << 20, kPieces = 512;

bundle::Region part(const bundle::Region &region, uint64_t offset, uint64_t bytes) {
  bundle::Region out = region;
  out.set_offset(region.offset() + offset);
  out.set_bytes(bytes);
  return out;
}

bool isParameters(const bundle::PersistentState &state) {
  return state.value().kind() == bundle::Value::PARAMETERS;
}

std::string fileName(const Bundle &bundle, uint32_t device) {
  std::string name = std::to_string(device) + "-";
  for (char c : bundle.devices[device].name)
    name += (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
                    c == '.' || c == '-' || c == '_' || c == ':'
                ? c
                : '_';
  return name + ".safetensors";
}

/// Name of a parameter in checkpoints.
const std::string &wholeName(const bundle::ParameterInfo &parameter) {
  return parameter.has_shard() ? parameter.shard().of() : parameter.name();
}

/// The parameters of checkpoints, which are whole, by parameter of the bundle.
std::vector<uint32_t> wholeParameters(const bundle::ModelSummary &summary) {
  std::vector<uint32_t> wholes;
  std::map<std::string, uint32_t> divided;
  uint32_t next = 0;
  for (const bundle::ParameterInfo &parameter : summary.parameters()) {
    uint32_t whole = next;
    if (parameter.has_shard())
      whole = divided.try_emplace(parameter.shard().of(), next).first->second;
    next += whole == next;
    wholes.push_back(whole);
  }
  return wholes;
}

/// Calls `visit(begin, end, part)` for the runs of a parameter's elements in the parameter of
/// checkpoints: elements [begin, end) there are those from `part` on. Both have the divided
/// dimension first.
template <typename Visit> void forWholeRuns(const bundle::ParameterInfo &parameter, Visit visit) {
  if (!parameter.has_shard())
    return visit(int64_t(0), elementsOf(parameter), int64_t(0));
  const bundle::ParameterInfo::Shard &shard = parameter.shard();
  const int64_t row = parameter.shape(0) ? elementsOf(parameter) / parameter.shape(0) : 0;
  int64_t part = 0;
  for (int s = 0; s < shard.begins_size(); ++s) {
    const int64_t begin = (shard.begins(s) + shard.first() * shard.widths(s)) * row,
                  length = shard.count() * shard.widths(s) * row;
    visit(begin, begin + length, part);
    part += length;
  }
}

std::string tensorName(const std::vector<std::string> &names, const CheckpointShard &slice) {
  return (slice.moment < 0 ? "" : "moment." + std::to_string(slice.moment) + "/") +
         names[slice.parameter] + "@" + std::to_string(slice.begin) + ":" +
         std::to_string(slice.end);
}

/// Padded so that slices begin on a whole block.
std::string headerText(const Bundle &bundle, const std::vector<uint32_t> &wholes,
                       const DeviceLayout &layout) {
  std::vector<std::string> names(wholes.size());
  for (size_t p = 0; p < wholes.size(); ++p)
    names[wholes[p]] = wholeName(bundle.summary.parameters(int(p)));
  SafetensorsHeader header;
  if (layout.optimizerStep)
    header.add("optimizer_step", StoredType::F64, {});
  const uint64_t before = header.bytes();
  for (const ShardLayout &laid : layout.slices)
    header.add(tensorName(names, laid.slice), laid.slice.type,
               {int64_t(laid.slice.end - laid.slice.begin)});
  return header.text(kDirectAlignment, before);
}

/// Adds the optimizer states of a parameter of a checkpoint.
void addStates(const bundle::ModelSummary &summary, const bundle::ParameterInfo &parameter,
               CheckpointParameter &made) {
  if (!made.trainable ||
      parameter.update_rule() >= static_cast<uint32_t>(summary.update_rules_size()))
    return;
  const bundle::UpdateRule &rule = summary.update_rules(int(parameter.update_rule()));
  const int64_t blocks = made.elements() / blockElements(rule);
  for (const bundle::UpdateRule::State &state : rule.states())
    made.states.push_back(
        {blocks * state.entries(),
         state.type() == bundle::ELEMENT_TYPE_UNSPECIFIED ? made.type : storedType(state.type())});
}

/// Gives a parameter of a checkpoint its shape and permutation with the divided dimension first.
void putDividedFirst(const bundle::ParameterInfo::Shard &shard, CheckpointParameter &made) {
  std::vector<int64_t> order{int64_t(shard.dim())}, permutation;
  for (int64_t d = 0; d < shard.shape_size(); ++d)
    if (d != order.front())
      order.push_back(d);
  made.shape.clear();
  for (int64_t d : order) {
    made.shape.push_back(shard.shape(int(d)));
    permutation.push_back(made.permutation.empty() ? d : made.permutation[size_t(d)]);
  }
  made.permutation = std::is_sorted(permutation.begin(), permutation.end()) ? std::vector<int64_t>()
                                                                            : permutation;
}

} // namespace

DeviceLayout zorse::runtime::layoutOf(const Bundle &bundle, uint32_t device) {
  DeviceLayout layout;
  layout.device = device;
  layout.name = fileName(bundle, device);
  const bundle::ModelSummary &summary = bundle.summary;
  const std::vector<uint32_t> wholes = wholeParameters(summary);
  for (const bundle::PersistentState &state : bundle.programs[device].state()) {
    const bundle::Value &value = state.value();
    if (value.kind() == bundle::Value::OPTIMIZER_STEP)
      layout.optimizerStep = state.region();
    if (!(isParameters(state) || value.kind() == bundle::Value::MOMENTS) ||
        !summary.groups(int(value.id())).trainable())
      continue;
    uint64_t size = elementBytes(state.type());
    for (uint32_t p : summary.groups(int(value.id())).parameters()) {
      const bundle::ParameterInfo &parameter = summary.parameters(int(p));
      auto visit = [&](int64_t whole, int64_t wholeEnd, int64_t first) {
        int64_t begin = std::max(value.begin(), first),
                end = std::min(value.end(), first + wholeEnd - whole);
        if (begin >= end)
          return;
        ShardLayout laid;
        laid.slice.parameter = wholes[p];
        laid.slice.moment = isParameters(state) ? -1 : int32_t(value.cut());
        laid.slice.begin = whole + begin - first;
        laid.slice.end = whole + end - first;
        laid.slice.type = storedType(state.type());
        laid.region = part(state.region(), uint64_t(begin - value.begin()) * size,
                           uint64_t(end - begin) * size);
        layout.slices.push_back(std::move(laid));
      };
      if (isParameters(state) || parameter.has_shard()) // parts have a state per element
        forWholeRuns(parameter, [&](int64_t whole, int64_t wholeEnd, int64_t part) {
          visit(whole, wholeEnd, parameter.offset() + part);
        });
      else {
        const StateLayout entries(summary, value.id(), value.cut());
        const int64_t first = entries.begin(parameter.offset());
        visit(0, entries.end(parameter.offset() + elementsOf(parameter)) - first, first);
      }
    }
  }
  std::sort(layout.slices.begin(), layout.slices.end(),
            [](const ShardLayout &a, const ShardLayout &b) {
              return std::tie(a.slice.moment, a.slice.parameter, a.slice.begin) <
                     std::tie(b.slice.moment, b.slice.parameter, b.slice.begin);
            });

  for (const ShardLayout &laid : layout.slices)
    layout.stateBytes += laid.slice.bytes();
  uint64_t max = std::min(std::max(kPiece, (layout.stateBytes / kPieces + 4095) / 4096 * 4096),
                          kLargestCheckpointShard);
  std::vector<ShardLayout> pieces;
  uint64_t place = 0;
  for (const ShardLayout &laid : layout.slices) {
    int64_t size = int64_t(bytesOf(laid.slice.type)), length = int64_t(max) / size;
    for (int64_t begin = laid.slice.begin; begin < laid.slice.end; begin += length) {
      ShardLayout piece = laid;
      piece.slice.begin = begin;
      piece.slice.end = std::min(begin + length, laid.slice.end);
      piece.region =
          part(laid.region, uint64_t((begin - laid.slice.begin) * size), piece.slice.bytes());
      piece.fileOffset = place;
      place += piece.slice.bytes();
      pieces.push_back(std::move(piece));
    }
  }
  layout.slices = std::move(pieces);
  layout.header = headerText(bundle, wholes, layout);
  for (ShardLayout &laid : layout.slices)
    laid.slice.offset = layout.headerBytes() + laid.fileOffset;
  layout.fileBytes = layout.headerBytes() + layout.stateBytes;
  return layout;
}

std::vector<CheckpointParameter> zorse::runtime::checkpointParameters(const Bundle &bundle) {
  std::vector<CheckpointParameter> out;
  const std::vector<uint32_t> wholes = wholeParameters(bundle.summary);
  for (int i = 0; i < bundle.summary.parameters_size(); ++i) {
    if (wholes[size_t(i)] < out.size())
      continue; // another part of a parameter
    const bundle::ParameterInfo &parameter = bundle.summary.parameters(i);
    const WeightSource &weight = bundle.weights[size_t(i)];
    CheckpointParameter made;
    made.name = wholeName(parameter);
    made.type = storedType(parameter.type());
    made.shape.assign(parameter.shape().begin(), parameter.shape().end());
    made.permutation = weight.permutation;
    if (parameter.has_shard())
      putDividedFirst(parameter.shard(), made);
    made.hub = weight.hub;
    const bundle::FlatGroupInfo &group = bundle.summary.groups(int(parameter.group()));
    made.trainable = group.trainable();
    addStates(bundle.summary, parameter, made);
    made.constant = parameter.constant();
    if (std::optional<StoredType> type = storedTypeNamed(weight.type); type && !made.trainable) {
      made.file = weight.file;
      made.offset = weight.offset;
      made.bytes = weight.bytes;
      made.storedType = *type;
    }
    out.push_back(std::move(made));
  }
  return out;
}

CheckpointIndex zorse::runtime::indexOf(const Bundle &bundle, const RunConfig &runConfig,
                                        bool allDevices) {
  CheckpointIndex index;
  index.precision = bundle.precision;
  index.runConfig = runConfig;
  index.hub = bundle.hub;
  index.parameters = checkpointParameters(bundle);
  for (uint32_t device = 0; device < bundle.programs.size(); ++device) {
    const DeviceLayout layout = layoutOf(bundle, device);
    if (layout.slices.empty() && !allDevices)
      continue;
    CheckpointFile file;
    file.name = layout.name;
    file.device = bundle.devices[device].name;
    file.bytes = layout.fileBytes;
    file.headerBytes = layout.headerBytes();
    for (const ShardLayout &laid : layout.slices)
      file.shards.push_back(laid.slice);
    index.files.push_back(std::move(file));
  }
  return index;
}

std::vector<FrozenParameter>
zorse::runtime::frozenParameters(const Bundle &bundle, const std::vector<uint32_t> &devices) {
  std::vector<FrozenParameter> out;
  std::set<uint32_t> seen;
  const bundle::ModelSummary &summary = bundle.summary;
  const std::vector<uint32_t> wholes = wholeParameters(summary);
  for (uint32_t device : devices)
    for (const bundle::PersistentState &state : bundle.programs[device].state()) {
      const bundle::Value &value = state.value();
      if (!isParameters(state) || summary.groups(int(value.id())).trainable())
        continue;
      uint64_t size = elementBytes(state.type());
      for (uint32_t p : summary.groups(int(value.id())).parameters()) {
        const bundle::ParameterInfo &parameter = summary.parameters(int(p));
        int64_t begin = parameter.offset(), end = begin + elementsOf(parameter);
        if (!parameter.has_shard() && begin >= value.begin() && end <= value.end() &&
            seen.insert(p).second)
          out.push_back({wholes[p], device,
                         part(state.region(), uint64_t(begin - value.begin()) * size,
                              uint64_t(end - begin) * size)});
      }
    }
  return out;
}
