#include "zorse/Sharding/GranuleMap.h"

#include "llvm/ADT/STLExtras.h"

using namespace zorse;
using namespace zorse::sharding;

/// A dimension with more segments is not divided: its points would be in too many pieces.
static constexpr size_t kMaxSegments = 1024;

bool GranuleMap::add(Segment segment, int64_t granules) {
  auto *at = llvm::lower_bound(
      segments, segment, [](const Segment &a, const Segment &b) { return a.begin < b.begin; });
  if (at != segments.end() && *at == segment)
    return true;
  if (at != segments.end() && at->begin < segment.begin + segment.width * granules)
    return false;
  if (at != segments.begin() &&
      std::prev(at)->begin + std::prev(at)->width * granules > segment.begin)
    return false;
  segments.insert(at, segment);
  return segments.size() <= kMaxSegments;
}

bool GranuleMap::add(const GranuleMap &other, int64_t granules) {
  return llvm::all_of(other.segments,
                      [&](const Segment &segment) { return add(segment, granules); });
}

bool GranuleMap::covers(int64_t size, int64_t granules) const { return width() * granules == size; }

int64_t GranuleMap::width() const {
  int64_t sum = 0;
  for (const Segment &segment : segments)
    sum += segment.width;
  return sum;
}

const GranuleMap *OpSplit::find(unsigned factor) const {
  const auto *it = llvm::find_if(factors, [&](const auto &entry) { return entry.first == factor; });
  return it == factors.end() ? nullptr : &it->second;
}

//===----------------------------------------------------------------------===//
// From dimensions to factors
//===----------------------------------------------------------------------===//

namespace {
/// Position of a factor in its segment.
struct FactorPlace {
  int64_t outer = 1, size = 1,
          inner = 1; ///< points of the factors before it, of it, and of those behind it

  int64_t block() const { return size * inner; }
};
} // namespace

static FactorPlace placeOf(const OpFactors &rule, const OpFactors::Segment &segment, size_t index) {
  FactorPlace place;
  for (auto [i, factor] : llvm::enumerate(segment.factors))
    (i < index ? place.outer : i == index ? place.size : place.inner) *= rule.factors[factor].size;
  return place;
}

/// Returns the map of a factor, given the map of its segment: every block of the factor must be
/// divided equally.
static std::optional<GranuleMap> mapOfFactor(const FactorPlace &place,
                                             llvm::ArrayRef<GranuleMap::Segment> segments,
                                             int64_t granules) {
  const size_t each = segments.size() / static_cast<size_t>(place.outer);
  if (each == 0 || each * static_cast<size_t>(place.outer) != segments.size())
    return std::nullopt;
  GranuleMap map;
  for (auto [i, segment] : llvm::enumerate(segments)) {
    const int64_t begin = segment.begin - static_cast<int64_t>(i / each) * place.block();
    if (begin < 0 || begin + segment.width * granules > place.block() || begin % place.inner != 0 ||
        segment.width % place.inner != 0)
      return std::nullopt;
    const GranuleMap::Segment own{begin / place.inner, segment.width / place.inner};
    if (i < each)
      map.segments.push_back(own);
    else if (!(map.segments[i % each] == own))
      return std::nullopt;
  }
  return map;
}

MapStatus sharding::addToSplit(const OpFactors &rule, const OpFactors::Dimension &dimension,
                               const GranuleMap &map, int64_t granules, OpSplit &split,
                               int64_t &coarser) {
  MapStatus status = MapStatus::None;
  int64_t at = 0;
  size_t next = 0;
  for (const OpFactors::Segment &segment : dimension) {
    const int64_t end = at + segment.size;
    llvm::SmallVector<GranuleMap::Segment> inside;
    for (; next < map.segments.size() && map.segments[next].begin < end; ++next) {
      if (map.segments[next].begin + map.segments[next].width * granules > end &&
          !segment.factors.empty())
        return MapStatus::Conflict;
      inside.push_back({map.segments[next].begin - at, map.segments[next].width});
    }
    at = end;
    if (inside.empty() || segment.factors.empty()) // points that the op does not read
      continue;
    bool found = false;
    for (size_t j = 0; j < segment.factors.size() && !found; ++j) {
      const FactorPlace place = placeOf(rule, segment, j);
      std::optional<GranuleMap> own = mapOfFactor(place, inside, granules);
      if (own && place.size > 1) {
        const unsigned factor = segment.factors[j];
        auto *entry =
            llvm::find_if(split.factors, [&](const auto &e) { return e.first == factor; });
        if (entry == split.factors.end())
          split.factors.push_back({factor, std::move(*own)});
        else if (!entry->second.add(*own, granules))
          return MapStatus::Conflict;
        found = true;
      } else if (place.outer == 1 && place.size > 1 && place.size < granules &&
                 granules % place.size == 0) {
        coarser = std::max(coarser, place.size);
      }
    }
    if (!found)
      return MapStatus::Conflict;
    status = MapStatus::Found;
  }
  return status;
}

//===----------------------------------------------------------------------===//
// From factors to dimensions
//===----------------------------------------------------------------------===//

MapStatus sharding::projectSplit(const OpFactors &rule, const OpFactors::Value &value,
                                 const OpSplit &split, int64_t granules, ShardedDim &sharded) {
  MapStatus status = MapStatus::None;
  for (auto [d, dimension] : llvm::enumerate(value)) {
    int64_t at = 0;
    for (const OpFactors::Segment &segment : dimension) {
      const GranuleMap *divided = nullptr;
      for (auto [j, factor] : llvm::enumerate(segment.factors)) {
        const GranuleMap *map = split.find(factor);
        if (!map)
          continue;
        if (divided || (status == MapStatus::Found && sharded.dim != d))
          return MapStatus::Conflict;
        divided = map;
        status = MapStatus::Found;
        sharded.dim = static_cast<unsigned>(d);
        const FactorPlace place = placeOf(rule, segment, j);
        for (int64_t outer = 0; outer < place.outer; ++outer)
          for (const GranuleMap::Segment &own : map->segments)
            if (!sharded.map.add(
                    {at + outer * place.block() + own.begin * place.inner, own.width * place.inner},
                    granules))
              return MapStatus::Conflict;
      }
      at += segment.size;
    }
  }
  return status;
}

std::string sharding::toString(const GranuleMap &map) {
  std::string text;
  for (const GranuleMap::Segment &segment : map.segments)
    text += (text.empty() ? "" : " ") + std::to_string(segment.begin) + ":" +
            std::to_string(segment.width);
  return text;
}
