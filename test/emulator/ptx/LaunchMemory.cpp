// Memory instructions.
#include "Launch.h"

#include <cstring>

using namespace zorse::emulator;
using namespace zorse::emulator::ptx;

Moment Launch::now(const Warp &warp, uint32_t lane) const {
  return {block * grid.threads + warp.first + lane + 1, epoch, warp.turn, warp.lanes[lane].fences};
}

bool Launch::isDefined(Warp &warp, uint32_t lane, const Instruction &i, const Source &source,
                       uint32_t bits, const char *what) {
  if (!(warp.undefinedOf(source, lane) & maskOf(bits)))
    return true;
  find("undefined", warp, lane, i, what);
  return false;
}

bool Launch::addressOf(Warp &warp, uint32_t lane, const Instruction &i, const Source &base,
                       uint64_t offset, uint64_t &address) {
  address = warp.valueOf(base, lane) + offset;
  return isDefined(warp, lane, i, base, 64, "an address depends on what is not defined");
}

Region *Launch::reach(Warp &warp, uint32_t lane, const Instruction &i, Space space,
                      const Access &access) {
  const uint32_t alignment = access.alignment ? access.alignment : access.bytes;
  if (access.address % alignment) {
    find("misaligned", warp, lane, i,
         std::to_string(access.bytes) + " bytes at an address that is " +
             std::to_string(access.address % alignment) + " off " + std::to_string(alignment));
    return nullptr;
  }
  Memory &memory = space == Space::Shared ? shared : global;
  std::string problem;
  Region *region = memory.find(access, problem);
  if (!region) {
    find("out of bounds", warp, lane, i, problem);
    return nullptr;
  }
  problem = memory.touch(*region, access, now(warp, lane), order);
  if (!problem.empty())
    find("race", warp, lane, i, problem);
  return region;
}

void Launch::loadParameter(Warp &warp, const Instruction &i, uint32_t lanes) {
  for (size_t k = 0; k < i.results.size(); ++k) {
    const uint64_t value = grid.parameters[i.address.value / 8] >> 8 * (i.offset + k * i.bits / 8) &
                           maskOf(i.bits);
    forLanes(lanes, [&](uint32_t lane) { warp.set(i.results[k], lane, value, 0); });
  }
}

/// Reads an element and its undefined bits.
static void readElement(const Region &region, uint64_t address, uint32_t bytes, uint64_t &value,
                        uint64_t &undefined) {
  const uint64_t at = address - region.begin;
  value = undefined = 0;
  std::memcpy(&value, region.bytes + at, bytes);
  for (uint32_t b = 0; b < bytes; ++b)
    undefined |= region.defined[at + b] ? 0 : uint64_t(255) << 8 * b;
}

void Launch::load(Warp &warp, const Instruction &i, uint32_t lane) {
  const uint32_t bytes = i.bits / 8;
  Access access{0, uint32_t(bytes * i.results.size()), i.access};
  Region *region = addressOf(warp, lane, i, i.address, i.offset, access.address)
                       ? reach(warp, lane, i, i.space, access)
                       : nullptr;
  for (size_t k = 0; k < i.results.size(); ++k) {
    uint64_t value = 0, undefined = 0;
    if (region)
      readElement(*region, access.address + k * bytes, bytes, value, undefined);
    for (uint32_t b = 0; i.usedBytes && b < bytes; ++b)
      undefined |= i.usedBytes >> (k * bytes + b) & 1 ? 0 : uint64_t(255) << 8 * b;
    if (i.isSigned && i.results[k] >= 0 && value >> (i.bits - 1) & 1)
      value |= maskOf(kernel.widths[size_t(i.results[k])]) & ~maskOf(i.bits);
    warp.set(i.results[k], lane, value, undefined);
  }
}

void Launch::store(Warp &warp, const Instruction &i, uint32_t lane) {
  const uint32_t bytes = i.bits / 8;
  Access access{0, uint32_t(bytes * i.sources.size()), i.access};
  if (!addressOf(warp, lane, i, i.address, i.offset, access.address))
    return;
  Region *region = reach(warp, lane, i, i.space, access);
  if (!region)
    return;
  const uint64_t at = access.address - region->begin;
  for (size_t k = 0; k < i.sources.size(); ++k) {
    isDefined(warp, lane, i, i.sources[k], i.bits,
              "a number that is stored depends on what is not defined");
    const uint64_t value = warp.valueOf(i.sources[k], lane);
    std::memcpy(region->bytes + at + k * bytes, &value, bytes);
  }
  std::memset(region->defined.data() + at, 1, access.bytes);
}

/// atom.inc: counts up to a limit, then restarts at 0. It continues from the value of earlier
/// launches.
void Launch::increment(Warp &warp, const Instruction &i, uint32_t lane) {
  Access access{0, 4, AccessKind::Atomic};
  if (!addressOf(warp, lane, i, i.address, i.offset, access.address))
    return;
  Region *region = reach(warp, lane, i, Space::Global, access);
  if (!region)
    return;
  isDefined(warp, lane, i, i.sources[0], 32,
            "a number that is stored depends on what is not defined");
  order.atomic(access.address, now(warp, lane));
  uint32_t before;
  const auto limit = uint32_t(warp.valueOf(i.sources[0], lane));
  uint8_t *at = region->bytes + (access.address - region->begin);
  std::memcpy(&before, at, 4);
  const uint32_t after = before >= limit ? 0 : before + 1;
  std::memcpy(at, &after, 4);
  warp.set(i.results[0], lane, before, 0);
}

void Launch::copy(Warp &warp, const Instruction &i, uint32_t lane) {
  const auto bytes = uint32_t(i.sources[2].value),
             size = uint32_t(warp.valueOf(i.sources[3], lane));
  Access to{0, bytes, AccessKind::Store}, from{0, bytes, AccessKind::Load};
  if (!addressOf(warp, lane, i, i.address, i.offset, to.address) ||
      !addressOf(warp, lane, i, i.sources[0], i.sources[1].value, from.address) ||
      !isDefined(warp, lane, i, i.sources[3], 32,
                 "the size of a copy depends on what is not defined"))
    return;
  if (size > bytes)
    return find("out of bounds", warp, lane, i, "copies more bytes than there are");
  Region *shareds = reach(warp, lane, i, Space::Shared, to);
  if (!shareds)
    return;
  from.alignment = bytes;
  from.bytes = size; // the bytes after these are not read
  if (size > 0 && !reach(warp, lane, i, Space::Global, from))
    return;
  shared.setPending(*shareds, to);
  const uint64_t at = to.address - shareds->begin;
  std::memset(shareds->bytes + at, 0xff, bytes);
  std::memset(shareds->defined.data() + at, 0, bytes);
  warp.lanes[lane].copies.push_back(
      {to.address, from.address, bytes, size, warp.lanes[lane].group});
}

void Launch::wait(Warp &warp, const Instruction &i, uint32_t lane) {
  Lane &self = warp.lanes[lane];
  std::vector<AsyncCopy> later;
  for (const AsyncCopy &copy : self.copies) {
    if (copy.group + i.sources[0].value >= self.group) {
      later.push_back(copy);
      continue;
    }
    std::string problem;
    const Access to{copy.to, copy.bytes, AccessKind::Store},
        from{copy.from, copy.size, AccessKind::Load};
    Region *region = shared.find(to, problem);
    const Region *source = copy.size ? global.find(from, problem) : nullptr;
    const uint64_t at = copy.to - region->begin;
    std::memset(region->bytes + at, 0, copy.bytes);
    std::memset(region->defined.data() + at, 1, copy.bytes);
    if (source) {
      std::memcpy(region->bytes + at, source->bytes + (copy.from - source->begin), copy.size);
      std::memcpy(region->defined.data() + at, source->defined.data() + (copy.from - source->begin),
                  copy.size);
    }
    shared.land(*region, to, now(warp, lane));
  }
  self.copies = std::move(later);
}

void Launch::fence(Warp &warp, uint32_t lane) {
  order.fence(now(warp, lane));
  ++warp.lanes[lane].fences;
}

/// ldmatrix.x4: lane 8 m + r gives the address of row r of matrix m, 16 bytes. Lane l receives
/// elements 2 (l mod 4) and the next one of row l / 4, of the matrix or of the transposed matrix.
void Launch::loadMatrices(Warp &warp, const Instruction &i) {
  uint16_t rows[32][8] = {};
  bool undefined[32][8] = {};
  for (uint32_t lane = 0; lane < 32; ++lane) {
    Access access{0, 16, AccessKind::Load};
    Region *region = addressOf(warp, lane, i, i.address, i.offset, access.address)
                         ? reach(warp, lane, i, Space::Shared, access)
                         : nullptr;
    if (!region)
      continue;
    const uint64_t at = access.address - region->begin;
    std::memcpy(rows[lane], region->bytes + at, 16);
    for (uint32_t e = 0; e < 8; ++e)
      undefined[lane][e] = !region->defined[at + 2 * e] || !region->defined[at + 2 * e + 1];
  }
  for (uint32_t lane = 0; lane < 32; ++lane)
    for (uint32_t m = 0; m < 4; ++m) {
      uint64_t value = 0, undefinedBits = 0;
      for (uint32_t e = 0; e < 2; ++e) {
        const uint32_t outer = lane / 4, inner = 2 * (lane % 4) + e;
        const uint32_t row = 8 * m + (i.isTransposed ? inner : outer),
                       column = i.isTransposed ? outer : inner;
        value |= uint64_t(rows[row][column]) << 16 * e;
        undefinedBits |= undefined[row][column] ? uint64_t(0xffff) << 16 * e : 0;
      }
      warp.set(i.results[m], lane, value, undefinedBits);
    }
}
