#include "Layout.h"

#include "Storage.h"

#include "zorse/runtime/Safetensors.h"

#include <algorithm>
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

std::string tensorName(const Bundle &bundle, const CheckpointShard &slice) {
  return (slice.moment < 0 ? "" : "moment." + std::to_string(slice.moment) + "/") +
         bundle.summary.parameters(int(slice.parameter)).name() + "@" +
         std::to_string(slice.begin) + ":" + std::to_string(slice.end);
}

/// Padded so that slices begin on a whole block.
std::string headerText(const Bundle &bundle, const DeviceLayout &layout) {
  SafetensorsHeader header;
  if (layout.optimizerStep)
    header.add("optimizer_step", StoredType::F64, {});
  const uint64_t before = header.bytes();
  for (const ShardLayout &laid : layout.slices)
    header.add(tensorName(bundle, laid.slice), laid.slice.type,
               {int64_t(laid.slice.end - laid.slice.begin)});
  return header.text(kDirectAlignment, before);
}

} // namespace

DeviceLayout zorse::runtime::layoutOf(const Bundle &bundle, uint32_t device) {
  DeviceLayout layout;
  layout.device = device;
  layout.name = fileName(bundle, device);
  const bundle::ModelSummary &summary = bundle.summary;
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
      int64_t begin = std::max(value.begin(), parameter.offset()),
              end = std::min(value.end(), parameter.offset() + elementsOf(parameter));
      if (begin >= end)
        continue;
      ShardLayout laid;
      laid.slice.parameter = p;
      laid.slice.moment = isParameters(state) ? -1 : int32_t(value.cut());
      laid.slice.begin = begin - parameter.offset();
      laid.slice.end = end - parameter.offset();
      laid.slice.type = storedType(state.type());
      laid.region = part(state.region(), uint64_t(begin - value.begin()) * size,
                         uint64_t(end - begin) * size);
      layout.slices.push_back(std::move(laid));
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
  layout.header = headerText(bundle, layout);
  for (ShardLayout &laid : layout.slices)
    laid.slice.offset = layout.headerBytes() + laid.fileOffset;
  layout.fileBytes = layout.headerBytes() + layout.stateBytes;
  return layout;
}

std::vector<CheckpointParameter> zorse::runtime::checkpointParameters(const Bundle &bundle) {
  std::vector<CheckpointParameter> out;
  for (int i = 0; i < bundle.summary.parameters_size(); ++i) {
    const bundle::ParameterInfo &parameter = bundle.summary.parameters(i);
    const WeightSource &weight = bundle.weights[size_t(i)];
    CheckpointParameter made;
    made.name = parameter.name();
    made.type = storedType(parameter.type());
    made.shape.assign(parameter.shape().begin(), parameter.shape().end());
    made.permutation = weight.permutation;
    made.hub = weight.hub;
    made.trainable = bundle.summary.groups(int(parameter.group())).trainable();
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

std::vector<FrozenParameter>
zorse::runtime::frozenParameters(const Bundle &bundle, const std::vector<uint32_t> &devices) {
  std::vector<FrozenParameter> out;
  std::set<uint32_t> seen;
  const bundle::ModelSummary &summary = bundle.summary;
  for (uint32_t device : devices)
    for (const bundle::PersistentState &state : bundle.programs[device].state()) {
      const bundle::Value &value = state.value();
      if (!isParameters(state) || summary.groups(int(value.id())).trainable())
        continue;
      uint64_t size = elementBytes(state.type());
      for (uint32_t p : summary.groups(int(value.id())).parameters()) {
        const bundle::ParameterInfo &parameter = summary.parameters(int(p));
        int64_t begin = parameter.offset(), end = begin + elementsOf(parameter);
        if (begin >= value.begin() && end <= value.end() && seen.insert(p).second)
          out.push_back({p, device,
                         part(state.region(), uint64_t(begin - value.begin()) * size,
                              uint64_t(end - begin) * size)});
      }
    }
  return out;
}
