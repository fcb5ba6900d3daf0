// The verifiers: local constraints on each op, and the program's own on all of them. Whether several programs fit together is lib/Verify's business.
#include "zorse/Dialect/Exec/Exec.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/SmallPtrSet.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace zorse::exec;

namespace {

/// Position of an op among the sections of a program; -1: it does not belong there.
int section(Operation &op) {
  return TypeSwitch<Operation *, int>(&op)
      .Case<ArenaOp>([](auto) { return 0; })
      .Case<QueueOp>([](auto) { return 1; })
      .Case<StateOp>([](auto) { return 2; })
      .Case<EntryOp>([](auto) { return 3; })
      .Default([](auto) { return -1; });
}

/// Regions anywhere in an op's attributes.
template <typename Visit> LogicalResult forEachRegion(Operation *op, Visit visit) {
  LogicalResult result = success();
  op->getAttrDictionary().walk([&](RegionAttr region) {
    if (succeeded(result))
      result = visit(region);
  });
  return result;
}

/// Symbols of devices: peers, roots and members.
template <typename Visit> LogicalResult forEachDevice(Operation *op, Visit visit) {
  LogicalResult result = success();
  op->getAttrDictionary().walk([&](FlatSymbolRefAttr device) {
    if (succeeded(result))
      result = visit(device);
  });
  return result;
}

LogicalResult verifyShards(Operation *op, ArrayAttr shards) {
  int64_t end = 0;
  for (auto shard : shards.getAsRange<ExtentAttr>()) {
    if (shard.getBegin() < end || shard.getEnd() < shard.getBegin())
      return op->emitOpError("(C1) expects shards to ascend without overlap, got ")
             << shard.getBegin() << ':' << shard.getEnd() << " of " << shard.getMember() << " after element " << end;
    end = shard.getEnd();
  }
  return success();
}

LogicalResult verifyDistinct(Operation *op, ArrayRef<Attribute> members, int constraint) {
  llvm::SmallPtrSet<Attribute, 8> seen;
  for (Attribute member : members)
    if (!seen.insert(member).second)
      return op->emitOpError("(C") << constraint << ") expects members not to repeat, got " << member << " twice";
  return success();
}

LogicalResult verifyShardMembers(Operation *op, ArrayAttr shards, ArrayAttr others) {
  SmallVector<Attribute> owners;
  for (auto shard : shards.getAsRange<ExtentAttr>())
    owners.push_back(shard.getMember());
  if (failed(verifyDistinct(op, owners, 2)))
    return failure();
  return verifyDistinct(op, others.getValue(), 2);
}

} // namespace

LogicalResult ProgramOp::verify() {
  llvm::DenseSet<Attribute> devices;
  for (Attribute device : getDevices())
    if (!isa<FlatSymbolRefAttr>(device) || !devices.insert(device).second)
      return emitOpError("(C1) expects a list of different device names, got ") << device;
  auto self = FlatSymbolRefAttr::get(getContext(), getSymName());
  if (getDevice() >= getDevices().size() || getDevices()[getDevice()] != self)
    return emitOpError("(C1) expects device ") << static_cast<int64_t>(getDevice()) << " of the list to be " << self;

  int last = 0;
  int64_t previous = -1;
  SmallVector<int64_t> arenas;
  llvm::DenseMap<Attribute, int64_t> queues;  // queue -> entries so far
  llvm::DenseMap<Attribute, int64_t> lengths; // queue -> all its entries
  for (Operation &op : getBody().front())
    if (auto entry = dyn_cast<EntryOp>(op))
      ++lengths[entry.getQueue()];

  for (Operation &op : getBody().front()) {
    int now = section(op);
    if (now < last)
      return op.emitOpError("(C2) expects arenas, queues, state and entries in this order");
    last = now;
    if (auto arena = dyn_cast<ArenaOp>(op))
      arenas.push_back(arena.getBytes());
    if (auto queue = dyn_cast<QueueOp>(op); queue && !queues.try_emplace(queue.getQueue(), 0).second)
      return op.emitOpError("(C3) expects a kind and an id that no other queue has");

    auto inArena = [&](Operation *at, RegionAttr region) -> LogicalResult {
      if (region.getBytes() == 0)
        return success();
      if (region.getArena() < 0 || region.getArena() >= static_cast<int64_t>(arenas.size()))
        return at->emitOpError("(C5) expects a declared arena, got number ") << region.getArena() << " of " << arenas.size();
      const int64_t bytes = arenas[region.getArena()]; // of any sign: arenas are verified after the program
      if (region.getOffset() < 0 || region.getBytes() < 0 || region.getBytes() > bytes || region.getOffset() > bytes - region.getBytes())
        return at->emitOpError("(C5) expects regions inside arena ")
               << region.getArena() << " of " << bytes << " bytes, got " << region.getOffset() << '+' << region.getBytes();
      return success();
    };
    WalkResult regions =
        op.walk([&](Operation *inner) -> WalkResult { return forEachRegion(inner, [&](RegionAttr region) { return inArena(inner, region); }); });
    if (regions.wasInterrupted())
      return failure();

    auto entry = dyn_cast<EntryOp>(op);
    if (!entry)
      continue;
    auto queue = queues.find(entry.getQueue());
    if (queue == queues.end())
      return op.emitOpError("(C3) expects its queue to be declared");
    if (entry.getId() <= previous)
      return op.emitOpError("(C4) expects entries to ascend by id, got ") << entry.getId() << " after " << previous;
    previous = entry.getId();

    if (ArrayAttr waits = entry.getWaitsAttr())
      for (auto wait : waits.getAsRange<WaitAttr>()) {
        auto target = queues.find(wait.getQueue());
        int64_t limit = target == queues.end() ? 0 : wait.getPreviousStep() ? lengths[wait.getQueue()] : target->second;
        if (wait.getPosition() < 0 || wait.getPosition() >= limit)
          return op.emitOpError("(C6) expects to wait for ") << (wait.getPreviousStep() ? "an entry of the previous step" : "an earlier entry")
                                                             << ", got " << stringifyQueueKind(wait.getQueue().getKind()) << wait.getQueue().getId()
                                                             << ':' << wait.getPosition() << " where there are " << limit;
      }
    ++queue->second;

    auto known = [&](FlatSymbolRefAttr device) -> LogicalResult {
      if (!devices.contains(device))
        return op.emitOpError("(C7) expects a device of the program, got ") << device;
      if (device == self && isa<SendOp, ReceiveOp>(op))
        return op.emitOpError("(C7) expects another device as peer, got itself");
      return success();
    };
    if (failed(forEachDevice(&op, known)))
      return failure();
  }
  return success();
}

LogicalResult ArenaOp::verify() {
  if (static_cast<int64_t>(getBytes()) < 0)
    return emitOpError("(C1) expects a size of at least 0, got ") << static_cast<int64_t>(getBytes());
  return success();
}

LogicalResult CallOp::verify() {
  if (static_cast<int64_t>(getRows()) < 1 || static_cast<int64_t>(getSampleBase()) < 0)
    return emitOpError("(C1) expects at least one row, from 0 or later, got ")
           << static_cast<int64_t>(getRows()) << " from " << static_cast<int64_t>(getSampleBase());
  for (auto slot : getSlots().getAsRange<BindingAttr>())
    if (slot.getOverwrite() && slot.getAccess() != Access::Accumulate && slot.getAccess() != Access::Unknown)
      return emitOpError("(C2) expects only accumulated slots to overwrite, got '") << stringifyAccess(slot.getAccess()) << " overwriting'";
  return success();
}

LogicalResult ComputeOp::verify() {
  bool ofCell = getTask() <= Task::R || getTask() == Task::SumLoss;
  if (ofCell != (static_cast<int64_t>(getCell()) >= 0))
    return emitOpError("(C1) expects task ") << stringifyTask(getTask()) << (ofCell ? " to name its cell" : " to name no cell");
  if (getQueue().getKind() != QueueKind::Compute)
    return emitOpError("(C2) expects a compute queue, got ") << stringifyQueueKind(getQueue().getKind()) << getQueue().getId();
  if (getCalls().front().empty())
    return emitOpError("(C3) expects at least one call");
  for (Operation &op : getCalls().front())
    if (!isa<CallOp>(op))
      return emitOpError("(C3) expects only calls, got '") << op.getName() << "'";
  return success();
}

LogicalResult CopyOp::verify() {
  if (getFrom().getBytes() != getTo().getBytes())
    return emitOpError("(C1) expects two regions of one size, got ") << getFrom().getBytes() << " and " << getTo().getBytes() << " bytes";
  return success();
}

LogicalResult LoadInputOp::verify() {
  if (getValue().getKind() != ValueKind::Input || getValue().getEnd() <= getValue().getBegin())
    return emitOpError("(C1) expects rows of an input, at least one, got ") << getValue();
  return success();
}

LogicalResult AllGatherOp::verify() {
  return failure(failed(verifyShards(*this, getShards())) || failed(verifyShardMembers(*this, getShards(), getReaders())));
}

LogicalResult ReduceScatterOp::verify() {
  return failure(failed(verifyShards(*this, getShards())) || failed(verifyShardMembers(*this, getShards(), getContributors())));
}

LogicalResult AllReduceOp::verify() { return verifyDistinct(*this, getMembers().getValue(), 1); }
