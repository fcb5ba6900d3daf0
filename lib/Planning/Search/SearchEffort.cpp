#include "SearchEffort.h"

using namespace zorse::planning;

namespace {

constexpr size_t kAny = SIZE_MAX;

// devices | tasks, of descents | every row, best neighbour, places first, large | patience, subclusters, seeds of each, priced parts, judged,
// least seeds, least leaders, whole groups | seed orders, seeds again, every seed, thorough seeds, shares units, suggests devices
constexpr SearchEffort kEfforts[] = {
    {6, 8e7, 1.2e7, true, true, true, false, 60, 48, 2, 24, 4, 8, 2, 25, 24, 24, true, true, true, true},
    {16, 8e7, 1.2e7, false, true, true, false, 200, 48, 2, 24, 4, 8, 2, 25, 24, 24, true, true, true, true},
    {32, 4e7, 4e7, false, false, true, false, 200, 48, 2, 24, 4, 8, 2, 25, 24, 24, true, true, true, true},
    {48, 4e7, 4e7, false, false, true, false, 200, 48, 2, 24, 4, 8, 2, 25, 24, 16, true, false, true, true},
    {64, 4e7, 4e7, false, false, true, false, 200, 48, 2, 24, 4, 8, 2, 60, 24, 16, true, false, true, true},
    {128, 4e7, 0, false, false, false, false, 200, 16, 2, 24, 4, 8, 2, 60, 24, 16, true, false, true, true},
    {256, 4e7, 0, false, false, false, false, 200, 16, 2, 24, 4, 8, 2, 60, 6, 0, false, false, true, true},
    {1024, 6e5, 0, false, false, false, true, 200, 2, 1, 8, 1, 8, 2, 60, 6, 0, false, false, false, true},
    {kAny, 6e5, 0, false, false, false, true, 200, 2, 1, 8, 1, 6, 1, 60, 6, 0, false, false, false, false},
};

} // namespace

const SearchEffort &SearchEffort::forDevices(size_t devices) {
  const SearchEffort *effort = kEfforts;
  while (devices > effort->mostDevices)
    ++effort;
  return *effort;
}

double SearchEffort::tasksFor(size_t devices) const { return largeTimes ? tasks * static_cast<double>(devices) / 512 : tasks; }
