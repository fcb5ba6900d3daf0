// Selects the transfers and collectives that go directly from GPU to GPU: those of devices that all
// exchange data directly, from memory to memory.
//
// On each device they share one queue, in the order of the global list. Two devices therefore
// execute their common operations in the same order, and all devices follow one order.
// Communication libraries need this: otherwise devices could wait for each other forever
// (deadlock).
//
// A sum needs a buffer for the received terms, and a function that adds them. A reduction is
// divided into rounds, so that this buffer does not grow with the model.

#include "PlanLowering.h"

#include <algorithm>
#include <set>

using namespace zorse::step;

namespace {

class TransferRouting {
public:
  explicit TransferRouting(PlanLowering &x) : x(x) {}

  void run() {
    for (uint32_t op = 0; op < x.ops.size(); ++op)
      if (x.ops[op].work != Work::Fixed && isDirect(x.ops[op]))
        route(op);
  }

private:
  PlanLowering &x;
  const zorse::RoundedSumFunctions functions = zorse::roundedSumFunctions(x.summary);

  uint32_t deviceOf(uint32_t instruction) const {
    return x.instructionQueues[instruction] / kQueues;
  }

  bool isDirect(const ScheduledOp &op) const {
    std::set<uint32_t> devices;
    for (uint32_t h = op.instructions.begin; h < op.instructions.end; ++h)
      devices.insert(deviceOf(h));
    if (devices.size() < 2)
      return false;
    const int32_t group = x.plan.devices[*devices.begin()].d2dGroup;
    return group >= 0 &&
           std::all_of(devices.begin(), devices.end(),
                       [&](uint32_t d) { return x.plan.devices[d].d2dGroup == group; }) &&
           canAdd(op);
  }

  bool canAdd(const ScheduledOp &op) const {
    if (op.work != Work::Scatter && op.work != Work::Sum)
      return true;
    const Collective &collective = x.graph.collectives[op.from];
    if (collective.bf16Terms)
      return functions.maxTerms() >= 2;
    return collective.members.size() == 1 || zorse::maxTerms(x.summary, collective.type) >= 2;
  }

  void route(uint32_t index) {
    ScheduledOp &op = x.ops[index];
    op.deviceToDevice = true;
    for (uint32_t h = op.instructions.begin; h < op.instructions.end; ++h)
      x.instructionQueues[h] = deviceOf(h) * kQueues + kDirect;
    if (op.work == Work::Sum)
      for (uint32_t h = op.instructions.begin; h < op.instructions.end; ++h)
        addParts(index, h,
                 zorse::sumPartsBytes(x.summary, x.graph.collectives[op.from].members.size()));
    if (op.work == Work::Scatter)
      addRounds(index);
  }

  /// Returns the bytes that the terms of rounds of `chunk` elements need on an owner.
  uint64_t partsBytes(const Collective &collective, size_t terms, int64_t chunk) const {
    return collective.bf16Terms ? zorse::roundedPartsBytes(functions.maxTerms(), terms, chunk)
                                : zorse::roundPartsBytes(x.summary, collective.type, terms, chunk);
  }

  /// Returns the bytes of every owner's shard that one round reduces. \param terms  of a shard
  uint64_t roundBytes(const Collective &collective, size_t terms) const {
    constexpr uint64_t kOfAll = 32 << 20, kLeast = 1 << 20;
    if (x.options.directChunk)
      return x.options.directChunk;
    const uint64_t aligned = kStateAlignment * (collective.bf16Terms ? 2 : 1), // also rounded
        buffers = std::max<uint64_t>(
            1, partsBytes(collective, terms,
                          static_cast<int64_t>(aligned / elementBytes(collective.type))) /
                   aligned);
    return std::max(kLeast, kOfAll / buffers / kStateAlignment * kStateAlignment);
  }

  void addRounds(uint32_t index) {
    const ScheduledOp op = x.ops[index];
    Collective &collective = x.graph.collectives[op.from];
    const uint64_t size = elementBytes(collective.type);
    int64_t largest = 0;
    size_t most = 0;
    for (const Shard &shard : collective.shards) {
      largest = std::max(largest, shard.size());
      most = std::max(most, termsOf(collective, shard.device));
    }
    for (uint32_t device : collective.members)
      most = std::max(most, sendsOf(collective, device));
    collective.chunk =
        most < 2 ? largest
                 : std::min(largest, static_cast<int64_t>(roundBytes(collective, most) / size));
    for (uint32_t h = op.instructions.begin; h < op.instructions.end; ++h)
      if (const size_t terms = termsOf(collective, deviceOf(h)))
        addParts(index, h, partsBytes(collective, terms, collective.chunk));
    for (uint32_t h = op.instructions.begin; h < op.instructions.end; ++h)
      if (const size_t sends = sendsOf(collective, deviceOf(h)))
        x.sends[h] = addBuffer(index, h, sends * zorse::roundedStride(collective.chunk));
  }

  /// Returns the number of other owners to which a device sends rounded terms.
  static size_t sendsOf(const Collective &collective, uint32_t device) {
    std::set<uint32_t> owners;
    for (const Shard &shard : collective.shards) {
      if (!collective.bf16Terms || shard.device == device || shard.empty())
        continue;
      const std::vector<uint32_t> holders =
          collective.parts.empty() ? collective.members : holdersOf(collective.parts, shard);
      if (holders.size() > 1 && std::find(holders.begin(), holders.end(), device) != holders.end())
        owners.insert(shard.device);
    }
    return owners.size();
  }

  /// Returns the largest number of terms that a device adds; 0 if it has no shard.
  static size_t termsOf(const Collective &collective, uint32_t device) {
    size_t terms = 0;
    for (const Shard &shard : collective.shards)
      if (shard.device == device)
        terms = std::max(terms, collective.parts.empty()
                                    ? collective.members.size()
                                    : holdersOf(collective.parts, shard).size());
    return terms;
  }

  void addParts(uint32_t op, uint32_t instruction, uint64_t bytes) {
    if (bytes)
      x.terms[instruction] = addBuffer(op, instruction, bytes);
  }

  Region addBuffer(uint32_t op, uint32_t instruction, uint64_t bytes) {
    const uint32_t buffer = x.addBuffer(deviceOf(instruction), bytes, MemoryCategory::Workspace);
    x.addAccess(op, buffer);
    return region(buffer, 0, bytes);
  }
};

} // namespace

void zorse::step::routeTransfers(PlanLowering &x) {
  if (std::any_of(x.plan.devices.begin(), x.plan.devices.end(),
                  [](const PlanDevice &device) { return device.d2dGroup >= 0; }))
    TransferRouting(x).run();
}
