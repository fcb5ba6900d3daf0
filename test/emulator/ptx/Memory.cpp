#include "Memory.h"

using namespace zorse::emulator::ptx;

void Memory::begin(uint32_t size) {
  granule = size;
  for (Region &region : regions)
    region.touched.assign((region.end - region.begin + granule - 1) / granule, Touched());
}

Region *Memory::find(const Access &access, std::string &problem) {
  const bool writes = access.kind == AccessKind::Store || access.kind == AccessKind::Atomic;
  auto holds = [&](const Region &r) {
    return access.address >= r.begin && access.address + access.bytes <= r.end &&
           (r.isWritable || !writes);
  };
  if (last < regions.size() && holds(regions[last]))
    return &regions[last];
  for (size_t i = 0; i < regions.size(); ++i)
    if (holds(regions[i])) {
      last = i;
      return &regions[i];
    }
  problem = std::string(writes ? "writes " : "reads ") + std::to_string(access.bytes) + " bytes";
  for (const Region &r : regions)
    if (access.address + 4096 > r.begin && access.address < r.end + 4096)
      problem += ", " + r.name + (r.isWritable ? "" : " (read only)") + " is [" +
                 std::to_string(int64_t(r.begin - access.address)) + ", " +
                 std::to_string(int64_t(r.end - access.address)) + ") from there";
  return nullptr;
}

const char *Memory::conflict(const Touched &t, const Access &access, const Moment &now,
                             const Order &order) {
  if (t.isPending)
    return "touches what a copy has not brought yet";
  const bool writes = access.kind == AccessKind::Store || access.kind == AccessKind::Atomic;
  if (access.kind == AccessKind::ConstantLoad && t.writer.thread)
    return "reads as constant what this launch has written";
  if (writes && t.isConstant)
    return "writes what this launch has read as constant";
  if (t.writer.thread && !(t.isAtomic && access.kind == AccessKind::Atomic) &&
      !order.isBefore(t.writer, now))
    return writes ? "writes what another thread has written"
                  : "reads what another thread has written";
  if (!writes || !t.reader.thread)
    return nullptr;
  // The last reader represents all others if they are ordered before it, in earlier epochs and
  // turns.
  const bool ofBlock = order.blockOf(t.reader) == order.blockOf(now),
             sameEpoch = ofBlock && t.reader.epoch == now.epoch;
  const bool sameTurn = sameEpoch && order.isOfWarp(t.reader, now) && t.reader.turn == now.turn;
  if (!order.isBefore(t.reader, now) || t.severalBlocks || (sameEpoch && t.severalWarps) ||
      (sameTurn && t.severalLanes))
    return "writes what another thread reads";
  return nullptr;
}

void Memory::record(Touched &t, const Access &access, const Moment &now, const Order &order) {
  if (access.kind == AccessKind::Store || access.kind == AccessKind::Atomic) {
    t = Touched();
    t.writer = now;
    t.isAtomic = access.kind == AccessKind::Atomic;
    return;
  }
  if (t.reader.thread) {
    const bool ofBlock = order.blockOf(t.reader) == order.blockOf(now),
               sameEpoch = ofBlock && t.reader.epoch == now.epoch;
    const bool ofWarp = order.isOfWarp(t.reader, now),
               sameTurn = sameEpoch && ofWarp && t.reader.turn == now.turn;
    t.severalBlocks |= !ofBlock;
    t.severalWarps = sameEpoch && (t.severalWarps || !ofWarp);
    t.severalLanes = sameTurn && (t.severalLanes || t.reader.thread != now.thread);
  }
  t.reader = now;
  t.isConstant |= access.kind == AccessKind::ConstantLoad;
}

std::string Memory::touch(Region &region, const Access &access, const Moment &now,
                          const Order &order) {
  const char *problem = nullptr;
  forGranules(region, access, [&](Touched &t) {
    if (const char *found = conflict(t, access, now, order))
      problem = found;
    record(t, access, now, order);
  });
  return problem ? problem : "";
}

void Memory::land(Region &region, const Access &access, const Moment &now) {
  forGranules(region, access, [&](Touched &t) {
    t = Touched();
    t.writer = now;
  });
}

void Memory::setPending(Region &region, const Access &access) {
  forGranules(region, access, [](Touched &t) { t.isPending = true; });
}
