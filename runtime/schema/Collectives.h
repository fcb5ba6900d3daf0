// Gathers and reductions, read as one. Both have a whole that owners have shards of: readers get
// it, or contributors have one each, of which owners get the sum. Code that treats both equally
// reads them by this class, and asks which it is only where they differ.
#pragma once

#include "ShardRanges.h"

#include <algorithm>
#include <optional>
#include <vector>

namespace zorse::bundle {

/// What one half of a gather or a reduction says. Valid while its instruction exists.
struct Collective {
  using Devices = google::protobuf::RepeatedField<uint32_t>;

  bool gathers; ///< else it sums
  uint32_t group;
  const Value &value; ///< of the whole
  ElementType type;
  ElementType termType;       ///< of the terms of sums of several terms; else `type`
  const ShardRanges &shards;  ///< owners, and their elements of the whole
  const Devices &members;     ///< readers, or contributors in the order of summation
  const ShardRanges &parts;   ///< the members' elements of the whole; none: each has all of them
  const Region &full, &shard; ///< of this device, as far as it is a member, an owner

  bool isMember(uint32_t device) const {
    return std::find(members.begin(), members.end(), device) != members.end();
  }
  bool owns(uint32_t device) const {
    return std::find(shards.members().begin(), shards.members().end(), device) !=
           shards.members().end();
  }
  /// Elements of the whole, as far as shards reach: no device accesses more of it.
  int64_t elements() const {
    return shards.end_size() ? *std::max_element(shards.end().begin(), shards.end().end()) : 0;
  }

  /// Runs of all members.
  std::vector<Shard> runs() const {
    std::vector<Shard> runs = shardsOf(parts);
    if (parts.members().empty())
      for (uint32_t member : members)
        runs.push_back({member, 0, elements()});
    return runs;
  }

  /// What a device has of it: the whole in `full`, shards from where `shard` begins.
  Held heldBy(uint32_t device, size_t elementBytes) const {
    Compact whole = shardsOf(parts, device);
    if (parts.members().empty() && isMember(device))
      whole.add(0, elements());
    const bool apart = !full.bytes() || shard.arena() != full.arena();
    return Held(std::move(whole), shardsOf(shards, device),
                apart ? UINT64_MAX : shard.offset() - full.offset(), elementBytes);
  }
};

/// Nothing: the instruction is another one.
inline std::optional<Collective> collectiveOf(const Instruction &instruction) {
  if (instruction.has_all_gather()) {
    const AllGather &a = instruction.all_gather();
    return Collective{true,       a.group(),   a.value(), a.type(), a.type(),
                      a.shards(), a.readers(), a.reads(), a.full(), a.shard()};
  }
  if (instruction.has_reduce_scatter()) {
    const ReduceScatter &r = instruction.reduce_scatter();
    const ElementType term = r.term_type() ? r.term_type() : r.type();
    return Collective{false,      r.group(),        r.value(), r.type(), term,
                      r.shards(), r.contributors(), r.terms(), r.full(), r.shard()};
  }
  return std::nullopt;
}

/// Devices that have a half of a gather, a reduction or a sum; ascending. None: the instruction is
/// another one.
inline std::vector<uint32_t> participantsOf(const Instruction &instruction) {
  std::vector<uint32_t> devices(instruction.all_reduce().members().begin(),
                                instruction.all_reduce().members().end());
  if (const std::optional<Collective> collective = collectiveOf(instruction))
    for (const auto *list : {&collective->members, &collective->shards.members()})
      devices.insert(devices.end(), list->begin(), list->end());
  std::sort(devices.begin(), devices.end());
  devices.erase(std::unique(devices.begin(), devices.end()), devices.end());
  return devices;
}

} // namespace zorse::bundle
