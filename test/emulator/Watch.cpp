// Checks bounds, alignment, initialization and the order of accesses, and counts traffic.
#include "GridState.h"

#include <algorithm>
#include <cstring>

using namespace zorse::emulator;

void Grid::note(uintptr_t address, uint32_t bytes, bool writes, uint32_t site) {
  together[{thread / 32, site, visits[{thread, site}]++}].push_back({address, bytes});
  for (uintptr_t sector = address / 32; sector <= (address + bytes - 1) / 32; ++sector)
    (writes ? written : read).insert(sector);
}

void Grid::noteShared(uintptr_t address, uint32_t bytes, uint32_t site) {
  togetherShared[{thread / 32, site, visits[{thread, site}]++}].push_back(
      {thread % 32, uint32_t(address - sharedBegin()), bytes});
}

void Grid::countBlock() {
  for (const auto &[key, request] : togetherShared) {
    const Wavefronts wavefronts = wavefrontsOf(request);
    traffic->sharedWavefronts += wavefronts.taken;
    traffic->minWavefronts += wavefronts.min;
  }
  togetherShared.clear();
  for (auto &[key, accesses] : together) {
    std::sort(accesses.begin(), accesses.end());
    uintptr_t end = 0, sectorsEnd = 0;
    for (auto [address, bytes] : accesses) {
      const uintptr_t last = address + bytes;
      if (last > end)
        traffic->usedBytes += last - std::max(end, address);
      end = std::max(end, last);
      const uintptr_t first = std::max(sectorsEnd, address / 32), beyond = (last + 31) / 32;
      if (beyond > first)
        traffic->sectors += beyond - first;
      sectorsEnd = std::max(sectorsEnd, beyond);
    }
    ++traffic->requests;
  }
  together.clear();
  visits.clear();
}

void Grid::find(const std::string &kind, uint32_t site, const std::string &what) {
  ++found;
  if (++counts[kind] > 3)
    return;
  findings.push_back(kind + ": " + what + ", block " + std::to_string(block) + ", thread " +
                     std::to_string(thread) + ", at " +
                     (site < kernel->sites->size() ? (*kernel->sites)[site] : "?"));
}

bool Grid::access(uintptr_t address, uint32_t bytes, uint32_t alignment, bool writes,
                  uint32_t site) {
  const uintptr_t end = address + bytes;
  if (alignment && address % alignment)
    find("misaligned", site,
         std::to_string(bytes) + " bytes at an address that is " +
             std::to_string(address % alignment) + " off " + std::to_string(alignment));
  bool isShared = inShared(address), isCommon = false;
  if (isShared) {
    if (end > sharedBegin() + sharedBytes())
      return find("out of bounds", site, "shared memory"), false;
  } else {
    auto holds = [&](const Range &range) {
      return address >= range.begin && end <= range.end && (range.writable || !writes);
    };
    if (std::any_of(kernel->constants.begin(), kernel->constants.end(), holds))
      return true;
    isCommon = std::any_of(kernel->common.begin(), kernel->common.end(), holds);
    if (!isCommon && std::none_of(launch->operands.begin(), launch->operands.end(), holds)) {
      std::string nearest;
      for (size_t i = 0; i < launch->operands.size(); ++i)
        if (const Range &range = launch->operands[i];
            address + 4096 > range.begin && address < range.end + 4096)
          nearest += ", operand " + std::to_string(i) + (range.writable ? "" : " (read only)") +
                     " is [" + std::to_string(int64_t(range.begin) - int64_t(address)) + ", " +
                     std::to_string(int64_t(range.end) - int64_t(address)) + ") from there";
      find("out of bounds", site,
           std::string(writes ? "writes " : "reads ") + std::to_string(bytes) + " bytes" + nearest);
      return false;
    }
  }
  if (traffic)
    isShared ? noteShared(address, bytes, site) : note(address, bytes, writes, site);
  // Two accesses of different threads, one of them a write, that no barrier orders.
  const uint32_t me = block * launch->threads + thread + 1;
  const uint32_t turn = turns[thread / 32];
  auto unordered = [&](uint32_t other, uint32_t otherEpoch, uint32_t otherTurn) {
    if (!other || other == me)
      return false;
    const uint32_t otherBlock = (other - 1) / launch->threads;
    if (otherBlock == block)
      return otherEpoch == epoch && (!isOfWarp(other, me) || otherTurn == turn);
    return !isCommon || !isGiven(other, otherBlock, otherEpoch, me);
  };
  const uint32_t step = bytes >= 4 ? 4 : bytes;
  for (uintptr_t at = address; at < end; at += step) {
    Touched &t = touchedAt(at, isShared);
    if (t.isPending)
      find("race", site, "touches what a copy has not brought yet");
    if (isShared && !writes && !t.writer)
      find("not written", site, "reads shared memory that nothing has written");
    if (isCommon && !writes && !t.writer)
      find("not written", site, "reads common memory that nothing has written in this launch");
    if (unordered(t.writer, t.writerEpoch, t.writerTurn))
      find("race", site,
           writes ? "writes what another thread writes" : "reads what another thread writes");
    const bool isRead = t.reader && t.readerEpoch == epoch,
               ofWarp = isRead && isOfWarp(t.reader, me);
    if (writes && (unordered(t.reader, t.readerEpoch, t.readerTurn) || (isRead && t.severalWarps) ||
                   (ofWarp && t.severalReaders && t.readerTurn == turn)))
      find("race", site, "writes what another thread reads");
    if (writes) {
      t.writer = me, t.writerEpoch = epoch, t.writerTurn = turn;
    } else {
      t.severalWarps = isRead && (t.severalWarps || !ofWarp);
      t.severalReaders = ofWarp && t.readerTurn == turn && (t.severalReaders || t.reader != me);
      t.reader = me, t.readerEpoch = epoch, t.readerTurn = turn;
    }
  }
  return true;
}

bool Grid::isGiven(uint32_t other, uint32_t otherBlock, uint32_t otherEpoch, uint32_t me) {
  if (!taken.thread || (taken.thread != me && taken.epoch == epoch))
    return false;
  const Moment &moment = given[counter][otherBlock];
  return moment.thread && (moment.thread == other || otherEpoch < moment.epoch);
}

void Grid::fence() {
  const uint32_t me = block * launch->threads + thread + 1;
  fences[me] = epoch;
  if (counted.thread == me)
    taken = {me, epoch};
}

void Grid::count(uintptr_t address, uint32_t site) {
  const uint32_t me = block * launch->threads + thread + 1;
  auto fenced = fences.find(me);
  if (fenced == fences.end() || fenced->second != epoch)
    find("race", site, "counts its block without a fence before");
  const bool isCommon = std::any_of(
      kernel->common.begin(), kernel->common.end(),
      [&](const Range &range) { return address >= range.begin && address + 4 <= range.end; });
  if (!isCommon)
    find("out of bounds", site, "counts outside of common memory");
  counter = address;
  counted = given[address][block] = {me, epoch};
}

void Grid::beginCopy(uintptr_t to, uintptr_t from, uint32_t bytes, uint32_t size, uint32_t site) {
  Thread &self = threads[thread];
  if (kernel->checked) {
    if (!inShared(to))
      return find("out of bounds", site, "copies to what is not shared memory");
    if (!access(to, bytes, bytes, true, site) ||
        (size > 0 && !access(from, size, bytes, false, site)))
      return;
    for (uint32_t i = 0; i < bytes; i += 4)
      touchedAt(to + i, true).isPending = true;
  }
  std::memset(reinterpret_cast<void *>(to), 0xff, bytes);
  self.copies.push_back({to, from, bytes, size, self.group});
}

void Grid::waitForCopies(uint32_t groups) {
  Thread &self = threads[thread];
  const uint32_t me = block * launch->threads + thread + 1;
  auto lands = [&](const Thread::Copy &copy) { return copy.group + groups < self.group; };
  for (const Thread::Copy &copy : self.copies) {
    if (!lands(copy))
      continue;
    std::memset(reinterpret_cast<void *>(copy.to), 0, copy.bytes);
    std::memcpy(reinterpret_cast<void *>(copy.to), reinterpret_cast<const void *>(copy.from),
                copy.size);
    for (uint32_t i = 0; kernel->checked && i < copy.bytes; i += 4) {
      Touched &t = touchedAt(copy.to + i, true);
      t = Touched();
      t.writer = me, t.writerEpoch = epoch, t.writerTurn = turns[thread / 32];
    }
  }
  self.copies.erase(std::remove_if(self.copies.begin(), self.copies.end(), lands),
                    self.copies.end());
}
