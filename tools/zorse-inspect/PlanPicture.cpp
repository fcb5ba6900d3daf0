// Draws the tiling of units x samples with box-drawing characters. Works for any tiling: a border
// is drawn between neighboring elementary rectangles that belong to different cells.
#include "Inspect.h"
#include "Terminal.h"

#include "zorse/Step/UnitTasks.h"
#include "zorse/Summary/Summary.h"

#include <algorithm>
#include <cstdio>

namespace zorse::inspect {

namespace {

struct Grid {
  const step::Plan &plan;
  std::vector<int64_t> samples; ///< boundaries, ascending
  std::vector<int32_t> units;
  std::vector<int> x, y; ///< column and line of each boundary
  std::vector<std::vector<int>> cell;

  Grid(const step::Plan &plan, int32_t unitCount, int width) : plan(plan) {
    samples = {0, plan.batch};
    units = {0, unitCount};
    for (const step::Cell &c : plan.cells) {
      samples.insert(samples.end(), {c.sampleBegin, c.sampleEnd});
      units.insert(units.end(), {c.unitBegin, c.unitEnd});
    }
    auto unique = [](auto &list) {
      std::sort(list.begin(), list.end());
      list.erase(std::unique(list.begin(), list.end()), list.end());
    };
    unique(samples);
    unique(units);
    // Column widths are proportional to samples, but at least three characters, so that the name of
    // a small cell fits.
    x = {0};
    for (size_t i = 1; i < samples.size(); ++i)
      x.push_back(x.back() + std::max<int>(4, (samples[i] - samples[i - 1]) * width /
                                                  std::max<int64_t>(1, plan.batch)));
    y = {0};
    for (size_t j = 1; j < units.size(); ++j)
      y.push_back(y.back() + 1 + std::clamp(units[j] - units[j - 1], 1, 3));
    cell.assign(units.size() - 1, std::vector<int>(samples.size() - 1, -1));
    for (size_t c = 0; c < plan.cells.size(); ++c)
      for (size_t j = 0; j + 1 < units.size(); ++j)
        for (size_t i = 0; i + 1 < samples.size(); ++i)
          if (plan.cells[c].unitBegin <= units[j] && units[j] < plan.cells[c].unitEnd &&
              plan.cells[c].sampleBegin <= samples[i] && samples[i] < plan.cells[c].sampleEnd)
            if (step::isListed(plan.cells[c]))
              cell[j][i] = static_cast<int>(c);
  }

  int at(int j, int i) const {
    bool inside = j >= 0 && i >= 0 && j < static_cast<int>(cell.size()) &&
                  i < static_cast<int>(cell[0].size());
    return inside ? cell[j][i] : -2;
  }
  /// Whether a border runs along boundary j in column interval i, and along boundary i in line
  /// interval j.
  bool horizontal(int j, int i) const { return at(j - 1, i) != at(j, i); }
  bool vertical(int j, int i) const { return at(j, i - 1) != at(j, i); }
};

const char *junction(bool up, bool down, bool left, bool right) {
  static const char *const shapes[] = {" ", "╵", "╷", "│", "╴", "┘", "┐", "┤",
                                       "╶", "└", "┌", "├", "─", "┴", "┬", "┼"};
  return shapes[up + 2 * down + 4 * left + 8 * right];
}

/// Returns the lines of the diagram. Each column is one string, because a border character may take
/// several bytes and an escape sequence.
std::vector<std::vector<std::string>> draw(const Grid &g) {
  int lines = g.y.back() + 1, columns = g.x.back() + 1;
  std::vector<std::vector<std::string>> picture(lines, std::vector<std::string>(columns, " "));
  int rows = static_cast<int>(g.cell.size()), cols = static_cast<int>(g.cell[0].size());
  for (int j = 0; j <= rows; ++j)
    for (int i = 0; i <= cols; ++i) {
      bool up = j > 0 && g.vertical(j - 1, i), down = j < rows && g.vertical(j, i);
      bool left = i > 0 && g.horizontal(j, i - 1), right = i < cols && g.horizontal(j, i);
      picture[g.y[j]][g.x[i]] = junction(up, down, left, right);
      if (right)
        for (int c = g.x[i] + 1; c < g.x[i + 1]; ++c)
          picture[g.y[j]][c] = "─";
      if (down)
        for (int l = g.y[j] + 1; l < g.y[j + 1]; ++l)
          picture[l][g.x[i]] = "│";
    }
  return picture;
}

/// Writes the name of the device, or of the group, into the center of each cell and colors the
/// inside.
void label(const Grid &g, std::vector<std::vector<std::string>> &picture) {
  for (const step::Cell &c : g.plan.cells) {
    if (!step::isListed(c))
      continue;
    auto column = [&](int64_t s) {
      return g.x[std::lower_bound(g.samples.begin(), g.samples.end(), s) - g.samples.begin()];
    };
    auto line = [&](int32_t u) {
      return g.y[std::lower_bound(g.units.begin(), g.units.end(), u) - g.units.begin()];
    };
    int x0 = column(c.sampleBegin) + 1, x1 = column(c.sampleEnd), y0 = line(c.unitBegin) + 1,
        y1 = line(c.unitEnd);
    std::string name = c.group < 0 ? g.plan.devices[c.device].name
                                   : g.plan.groups[static_cast<size_t>(c.group)].name;
    if (columnsOf(name) > x1 - x0) // "small0" and "small1" in three columns: sm0, sm1
      name = x1 - x0 > 1 ? name.substr(0, x1 - x0 - 1) + name.back() : name.substr(0, 1);
    int start = x0 + (x1 - x0 - columnsOf(name)) / 2, middle = (y0 + y1 - 1) / 2;
    for (int l = y0; l < y1; ++l)
      for (int k = x0; k < x1; ++k)
        if (l != middle || k < start || k >= start + columnsOf(name))
          picture[l][k] = onColour(" ", c.device);
    int k = start;
    for (size_t b = 0; b < name.size(); ++k) { // one UTF-8 character per column
      size_t e = b + 1;
      while (e < name.size() && (static_cast<unsigned char>(name[e]) & 0xC0) == 0x80)
        ++e;
      picture[middle][k] = onColour(name.substr(b, e - b), c.device);
      b = e;
    }
  }
}

} // namespace

void printPlan(const InspectedBundle &what) {
  const bundle::ModelSummary &summary = what.bundle.summary;
  int margin = 0;
  for (const auto &unit : summary.units())
    margin = std::max(margin, columnsOf(unit.name()));
  margin = std::min(margin, 24) + 5;
  Grid grid(what.plan, summary.units_size(),
            std::max(20, std::min(terminalWidth(), 100) - margin - 4));
  auto picture = draw(grid);
  label(grid, picture);

  std::string ruler = fit("  samples", margin);
  for (size_t i = 0; i < grid.samples.size(); ++i) {
    std::string number = std::to_string(grid.samples[i]);
    int place = margin + grid.x[i];
    if (columnsOf(ruler) + (i > 0) <= place)
      ruler = fit(ruler, place) + number;
  }
  puts(dim(ruler).c_str());
  for (size_t l = 0; l < picture.size(); ++l) {
    // Prints the units of this interval, one per line; the last line represents all remaining ones.
    std::string name;
    for (size_t j = 0; j + 1 < grid.units.size(); ++j) {
      int first = grid.y[j] + 1, count = grid.y[j + 1] - first,
          offset = static_cast<int>(l) - first;
      if (offset < 0 || offset >= count)
        continue;
      int unit = grid.units[j] + offset, last = grid.units[j + 1] - 1;
      if (offset == count - 1 && unit < last)
        name = std::to_string(unit) + "–" + std::to_string(last);
      else
        name = std::to_string(unit) + " " + summary.units(unit).name();
    }
    std::string text = "  " + fit(name, margin - 3) + " ";
    for (const std::string &column : picture[l])
      text += column;
    puts(text.c_str());
  }

  std::vector<double> work(what.plan.devices.size());
  std::vector<int> cells(what.plan.devices.size());
  double max = 0;
  for (const step::Cell &c : what.plan.cells) {
    for (int u = c.unitBegin; u < c.unitEnd; ++u)
      work[c.device] += c.rows() * trainingFlops(zorse::classOf(
                                       summary, step::unitInfo(summary, {u, c.group, c.member})));
    ++cells[c.device];
    max = std::max(max, work[c.device]);
  }
  double total = 0;
  for (double w : work)
    total += w;
  puts("");
  std::vector<std::vector<std::string>> table = {{"device", ">cells", "share of the FLOPs", ">"}};
  for (size_t d = 0; d < work.size(); ++d)
    table.push_back({coloured(what.plan.devices[d].name, d), std::to_string(cells[d]),
                     coloured(bar(max > 0 ? work[d] / max : 0, 30), d),
                     percent(total > 0 ? work[d] / total : 0)});
  printTable(table);
}

} // namespace zorse::inspect
