// Memory from a profile: the capacity found on devices, and the workspace of the tasks of a class.
#include "CostTables.h"
#include "zorse/Base/Format.h"

#include "bundle.pb.h"

#include <algorithm>
#include <set>

using namespace zorse;
using namespace zorse::planning;

std::vector<std::string> zorse::planning::limitMemory(const Profile &profile, Cluster &cluster) {
  std::vector<std::string> lines;
  for (ClusterDevice &device : cluster.devices) {
    const DeviceProfile *measured = findProfile(profile, device);
    if (!measured || measured->memory == 0 ||
        (device.memory > 0 && device.memory <= measured->memory))
      continue;
    const std::string line =
        "memory of '" + measured->device + "' is limited to the " +
        showBytes(double(measured->memory)) + " that the profile found; the cluster says " +
        (device.memory ? showBytes(double(device.memory)) : std::string("nothing"));
    device.memory = measured->memory;
    if (std::find(lines.begin(), lines.end(), line) == lines.end())
      lines.push_back(line);
  }
  return lines;
}

namespace {

struct Line {
  int64_t fixed = 0, perRow = 0;
  int64_t at(int64_t rows) const { return fixed + perRow * rows; }
};

/// Returns a line with no measured point above it: it has the steepest slope between successive
/// points and is shifted up to the highest point.
Line above(const std::vector<const ProfilePoint *> &points) {
  Line line;
  for (size_t i = 1; i < points.size(); ++i)
    if (int64_t more = points[i]->memory - points[i - 1]->memory; more > 0) {
      const int64_t rows = points[i]->rows - points[i - 1]->rows;
      line.perRow = std::max(line.perRow, (more + rows - 1) / rows);
    }
  if (points.size() == 1)
    line.perRow = (points[0]->memory + points[0]->rows - 1) / points[0]->rows;
  for (const ProfilePoint *point : points)
    line.fixed = std::max(line.fixed, point->memory - line.perRow * point->rows);
  return line;
}

} // namespace

std::vector<std::string> zorse::planning::raiseWorkspace(const Profile &profile,
                                                         const Cluster &cluster,
                                                         bundle::ModelSummary &summary) {
  std::vector<std::string> lines;
  const std::vector<std::string> names = classNames(summary);
  std::set<const DeviceProfile *> used;
  for (const ClusterDevice &device : cluster.devices)
    if (const DeviceProfile *measured = findProfile(profile, device))
      used.insert(measured);
  std::set<std::pair<int, std::string>> said;
  for (const DeviceProfile &device : profile.devices) {
    if (!used.count(&device))
      continue;
    for (int c = 0; c < summary.classes_size(); ++c) {
      auto entry = static_cast<size_t>(c) < names.size()
                       ? device.classes.find(names[static_cast<size_t>(c)])
                       : device.classes.end();
      if (entry == device.classes.end())
        continue;
      std::vector<const ProfilePoint *> points;
      for (const ClassProfile &atDegree : entry->second)
        for (const ProfilePoint &point : atDegree.points)
          if (atDegree.degree == 1 && point.memory >= 0)
            points.push_back(&point);
      if (points.empty())
        continue;
      const Line line = above(points);
      const int64_t rows = points.back()->rows;
      int64_t max = -1;
      for (bundle::UnitFunction &function : *summary.mutable_classes(c)->mutable_functions()) {
        bundle::AffineSize *space = function.mutable_workspace();
        const bool more = std::any_of(points.begin(), points.end(), [&](const ProfilePoint *point) {
          return point->memory > space->fixed() + space->per_row() * point->rows;
        });
        if (!more)
          continue;
        max = std::max(max, space->fixed() + space->per_row() * rows);
        space->set_fixed(std::max(space->fixed(), line.fixed));
        space->set_per_row(std::max(space->per_row(), line.perRow));
      }
      if (max >= 0 && said.insert({c, device.device}).second)
        lines.push_back("workspace of class '" + entry->first + "' is the " +
                        showBytes(double(line.at(rows))) + " at " + std::to_string(rows) +
                        (rows == 1 ? " sample" : " samples") + " that the profile gives for '" +
                        device.device + "', on every device; computed were " +
                        showBytes(double(max)));
    }
  }
  return lines;
}
