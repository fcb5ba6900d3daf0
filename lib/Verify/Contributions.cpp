#include "SymbolicExecution.h"

#include <set>

using namespace zorse;
using namespace zorse::verify;

/// Sweeps over samples. The parts that are open at a sample must not overlap. Together they must
/// cover the whole axis inside `rows`, and nothing outside.
bool verify::tiles(const std::vector<Contribution> &contributions, const std::vector<Range> &rows,
                   int32_t length) {
  struct Border {
    int64_t sample;
    bool begins; ///< ends sort before begins
    Part part;
    bool operator<(const Border &o) const {
      return std::tie(sample, begins) < std::tie(o.sample, o.begins);
    }
  };
  std::vector<Border> borders;
  for (const Contribution &c : contributions) {
    if (c.begin >= c.end || c.part.begin < 0 || c.part.begin >= c.part.end || c.part.end > length)
      return false;
    borders.push_back({c.begin, true, c.part});
    borders.push_back({c.end, false, c.part});
  }
  std::sort(borders.begin(), borders.end());
  std::set<Part> open;
  int64_t covered = 0; ///< length of the axis that open parts cover
  std::vector<Range> whole, expected;
  for (size_t i = 0; i < borders.size(); ++i) {
    const auto &[sample, begins, part] = borders[i];
    if (begins) {
      const auto [at, fresh] = open.insert(part);
      if (!fresh || (at != open.begin() && std::prev(at)->end > part.begin) ||
          (std::next(at) != open.end() && part.end > std::next(at)->begin))
        return false;
    } else {
      open.erase(part);
    }
    const bool before = covered != 0;
    covered += begins ? part.end - part.begin : part.begin - part.end;
    if (i + 1 < borders.size() && borders[i + 1].sample == sample)
      continue;
    if (covered != 0 && covered != length)
      return false;
    if (covered != 0 && (whole.empty() || whole.back().end > whole.back().begin))
      whole.push_back({sample, sample});
    else if (covered == 0 && before)
      whole.back().end = sample;
  }
  for (const Range &range : rows)
    if (!expected.empty() && expected.back().end == range.begin)
      expected.back().end = range.end;
    else
      expected.push_back(range);
  return whole == expected;
}

/// Compares `found` with `expected` and reports the first difference. If only the union of ranges
/// matters, the caller has joined adjacent ranges.
bool SymbolicExecution::compare(std::vector<Contribution> found, std::vector<Contribution> expected,
                                Code code, const std::string &name, const char *unit) {
  std::sort(found.begin(), found.end());
  std::sort(expected.begin(), expected.end());
  if (found == expected)
    return true;
  auto text = [&](const Contribution &c) {
    const auto &summary = model.summary;
    bool group = std::string(unit) == "group";
    std::string label =
        group ? (c.of < uint32_t(summary.groups_size()) ? summary.groups(int(c.of)).name() : "")
              : (c.of < uint32_t(summary.units_size()) ? summary.units(int(c.of)).name() : "");
    return std::string(unit) + " " + std::to_string(c.of) +
           (label.empty() ? "" : " '" + label + "'") +
           (c.begin < c.end ? std::string(group ? ", elements " : ", samples ") +
                                  std::to_string(c.begin) + "-" + std::to_string(c.end)
                            : "") +
           (c.part == Part()
                ? ""
                : ", part " + std::to_string(c.part.begin) + "-" + std::to_string(c.part.end));
  };
  size_t i = 0, j = 0;
  while (i < found.size() && j < expected.size() && found[i] == expected[j])
    ++i, ++j;
  if (i < found.size() && i && found[i] == found[i - 1])
    return fail(code, name + " holds the contribution of " + text(found[i]) + " twice");
  if (j < expected.size() && (i == found.size() || expected[j] < found[i]))
    return fail(code, name + " misses the contribution of " + text(expected[j]));
  return fail(code, name + " holds a contribution of " + text(found[i]) + " that it should not");
}

bool SymbolicExecution::checkValueGradient(const ContributionList &list, const Logical &value) {
  // Units add in descending order, or all together when they arrive: most lists are as expected,
  // from one end or the other.
  const auto &units = model.valueContributors[value.id];
  const size_t first = std::lower_bound(units.begin(), units.end(), value.cut) - units.begin(),
               count = units.size() - first;
  auto equal = [&](auto begin) {
    for (size_t i = 0; i < count; ++i)
      if (!(begin[i] == Contribution{units[first + i], 0, 0, 0}))
        return false;
    return true;
  };
  if (list.items.size() == count && (equal(list.items.begin()) || equal(list.items.rbegin())))
    return true;
  std::vector<Contribution> expected;
  for (uint32_t unit : model.valueContributors[value.id])
    if (unit >= value.cut)
      expected.push_back({unit, 0, 0, 0});
  return compare(list.items, std::move(expected), Code::Contributions,
                 "the gradient of value '" + model.summary.values(int(value.id)).name() + "'",
                 "unit");
}

bool SymbolicExecution::checkGradient(const ContributionList &list, uint32_t parameter) {
  // If backwards run in the order of samples, the list is already sorted.
  size_t next = 0;
  bool ordered = true;
  std::vector<uint32_t> units; // that add to it on this device
  for (uint32_t unit : model.parameterContributors[parameter])
    if (model.contributes(program.device(), unit, parameter))
      units.push_back(unit);
  for (uint32_t unit : units)
    for (const Range &rows : rowsOfUnit[unit])
      ordered = ordered && next < list.items.size() &&
                list.items[next++] == Contribution{unit, 0, rows.begin, rows.end};
  if (ordered && next == list.items.size())
    return true;
  std::vector<Contribution> expected, found = list.items;
  for (uint32_t unit : units)
    for (const Range &rows : rowsOfUnit[unit])
      expected.push_back({unit, 0, rows.begin, rows.end});
  std::sort(found.begin(), found.end());
  return found == expected || tileRows(found, units) ||
         compare(std::move(found), std::move(expected), Code::Contributions,
                 "the gradient of parameter '" + model.summary.parameters(int(parameter)).name() +
                     "'",
                 "unit");
}

/// Whether the contributions of every unit tile its rows, in any division into samples and parts.
/// Contributions are sorted.
bool SymbolicExecution::tileRows(const std::vector<Contribution> &contributions,
                                 const std::vector<uint32_t> &units) const {
  auto next = contributions.begin();
  for (uint32_t unit : units) {
    const auto first = next;
    next = std::find_if(next, contributions.end(),
                        [&](const Contribution &c) { return c.of != unit; });
    if (!tiles({first, next}, rowsOfUnit[unit]))
      return false;
  }
  return next == contributions.end();
}

/// Joins adjacent ranges of equal (of, term). Overlaps stay as they are: the comparison then fails.
static std::vector<Contribution> joined(std::vector<Contribution> items) {
  std::sort(items.begin(), items.end());
  size_t kept = 0;
  for (size_t i = 0; i < items.size(); ++i) {
    if (kept && items[kept - 1].of == items[i].of && items[kept - 1].term == items[i].term &&
        items[kept - 1].end == items[i].begin)
      items[kept - 1].end = items[i].end;
    else
      items[kept++] = items[i];
  }
  items.resize(kept);
  return items;
}

bool SymbolicExecution::checkNorm(const ContributionList &list) {
  const auto &owned = device.getResult().owned;
  std::vector<Contribution> expected;
  for (const auto &extent : owned)
    if (!model.summary.groups(int(extent.group)).running_stat())
      model.forPieces(extent.group, extent.begin, extent.end,
                      [&](int64_t begin, int64_t end, uint32_t) {
                        expected.push_back({extent.group, 0, begin, end});
                      });
  return compare(joined(list.items), joined(std::move(expected)), Code::Norm, "the gradient norm",
                 "group");
}

bool SymbolicExecution::checkLoss(const ContributionList &list) {
  std::vector<Contribution> expected;
  for (int u = 0; u < model.summary.units_size(); ++u)
    for (uint32_t term : model.addsLoss(program.device(), uint32_t(u))
                             ? model.summary.units(u).loss_terms()
                             : google::protobuf::RepeatedField<uint32_t>())
      for (const Range &rows : rowsOfUnit[u])
        expected.push_back({uint32_t(u), term, rows.begin, rows.end});
  return compare(joined(list.items), joined(std::move(expected)), Code::Loss, "the loss sum",
                 "unit");
}
