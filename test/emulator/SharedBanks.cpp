#include "SharedBanks.h"

#include <algorithm>
#include <set>

using namespace zorse::emulator;

Wavefronts zorse::emulator::wavefrontsOf(const std::vector<SharedAccess> &request) {
  Wavefronts all;
  uint32_t widest = 4;
  for (const SharedAccess &access : request)
    widest = std::max(widest, access.bytes);
  const uint32_t lanes = std::max(1u, 128 / widest);
  for (uint32_t first = 0; first < 32; first += lanes) {
    std::set<uint32_t> words;
    for (const SharedAccess &access : request)
      if (access.lane >= first && access.lane < first + lanes)
        for (uint32_t word = access.offset / 4; word <= (access.offset + access.bytes - 1) / 4;
             ++word)
          words.insert(word);
    if (words.empty())
      continue;
    uint64_t ofBank[32] = {};
    for (uint32_t word : words)
      ++ofBank[word % 32];
    all.taken += *std::max_element(ofBank, ofBank + 32);
    all.min += (words.size() + 31) / 32;
  }
  return all;
}
