#include "zorse/Planning/Report.h"

#include <algorithm>
#include <map>
#include <set>

using namespace zorse::step;

namespace {

/// Letters of devices; after 52 devices they repeat.
char letter(uint32_t device) {
  static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
  return letters[device % 52];
}

std::string pad(std::string text, size_t width) {
  text.resize(std::max(width, text.size()), ' ');
  return text;
}

/// Returns the name of the device of a cell, or "tp0 (a100:0, a100:1)" of its group.
std::string nameOf(const Plan &plan, const Cell &cell) {
  if (cell.group < 0)
    return plan.devices[cell.device].name;
  const DeviceGroup &group = plan.groups[static_cast<size_t>(cell.group)];
  std::string devices;
  for (uint32_t device : group.devices)
    devices += (devices.empty() ? "" : ", ") + plan.devices[device].name;
  return group.name + " (" + devices + ")";
}

/// Legend "devices       a = t4:0, b = t4:1" of devices and groups with cells, in lines of about
/// 100 letters. The first device of a group stands for it.
std::string legend(const Plan &plan) {
  std::map<uint32_t, std::string> used;
  for (const Cell &cell : plan.cells)
    if (isListed(cell))
      used.try_emplace(cell.device, nameOf(plan, cell));
  std::string out, line = pad("devices", 14);
  size_t shown = 0;
  for (const auto &[d, name] : used) {
    if (shown == 52) { // letters repeat from here
      line += "... (" + std::to_string(used.size() - shown) + " more; letters repeat from a)";
      break;
    }
    std::string entry = std::string(1, letter(d)) + " = " + name +
                        (++shown < used.size() ? ", " : "");
    if (line.size() + entry.size() > 100 && line.size() > 14) {
      out += line.substr(0, line.size() - 1) + "\n";
      line = std::string(14, ' ');
    }
    line += entry;
  }
  return out + line + "\n";
}

} // namespace

std::string zorse::planning::drawPlan(const Plan &plan, int32_t units, int width) {
  std::set<int32_t> cuts{0, units};
  for (const Cell &cell : plan.cells) {
    cuts.insert(cell.unitBegin);
    cuts.insert(cell.unitEnd);
  }
  int64_t columns = std::min<int64_t>(plan.batch, std::max(width, 8));
  std::string ruler(columns + 8, ' ');
  for (int64_t mark = 0; mark <= 4; ++mark) {
    int64_t column = columns * mark / 4;
    std::string number = std::to_string(plan.batch * mark / 4 * plan.samplesPerRow);
    if (mark > 0 && column - columns * (mark - 1) / 4 < static_cast<int64_t>(number.size()) + 1)
      continue;
    ruler.replace(column, number.size(), number);
  }
  ruler.erase(ruler.find_last_not_of(' ') + 1);
  std::string out = pad("samples", 14) + ruler + "\n";
  for (auto it = cuts.begin(); std::next(it) != cuts.end(); ++it) {
    int32_t begin = *it, end = *std::next(it);
    std::string row(columns, '?');
    for (uint32_t i = 0; i < plan.cells.size(); ++i) {
      const Cell &cell = plan.cells[i];
      if (cell.unitBegin > begin || cell.unitEnd < end || !isListed(cell))
        continue;
      for (int64_t column = 0; column < columns; ++column) {
        int64_t sample = (2 * column + 1) * plan.batch / (2 * columns);
        if (cell.sampleBegin <= sample && sample < cell.sampleEnd)
          row[column] = letter(cell.device);
      }
    }
    out += pad("units " + std::to_string(begin) + "-" + std::to_string(end), 14) + row + "\n";
  }
  return out + legend(plan);
}
