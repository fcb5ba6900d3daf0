#include "Order.h"

using namespace zorse::emulator::ptx;

bool Order::isBefore(const Moment &before, const Moment &now) const {
  const uint32_t block = blockOf(before);
  if (block == blockOf(now))
    return isBeforeInBlock(before, now);
  auto all = acquisitions.find(blockOf(now));
  if (all == acquisitions.end())
    return false;
  for (const Acquisition &acquisition : all->second) {
    if (!isBeforeInBlock(acquisition.at, now))
      continue;
    auto release = acquisition.releases.find(block);
    if (release == acquisition.releases.end())
      continue;
    const Moment &fence = release->second;
    if (fence.thread == before.thread ? before.fences < fence.fences
                                      : isBeforeInBlock(before, fence))
      return true;
  }
  return false;
}

void Order::fence(const Moment &now) {
  Moment &last = lastFence[now.thread];
  last = now;
  ++last.fences; // earlier accesses of the thread have a smaller count
  if (auto found = seen.find(now.thread); found != seen.end()) {
    acquisitions[blockOf(now)].push_back({now, std::move(found->second)});
    seen.erase(found);
  }
}

void Order::atomic(uint64_t address, const Moment &now) {
  Releases &here = releases[address];
  seen[now.thread].insert(here.begin(), here.end());
  if (auto fence = lastFence.find(now.thread); fence != lastFence.end())
    here[blockOf(now)] = fence->second;
}
