#include "zorse/Collectives/Schedule.h"

#include <algorithm>

using namespace zorse::collectives;

namespace {

class ScheduleMaker {
public:
  ScheduleMaker(const Tree &tree, const std::vector<Cover> &covers)
      : tree(tree), firstOf(tree.size() + 1, 0) {
    for (size_t g = 0; g < tree.size(); ++g) {
      firstOf[g] = size();
      addGroup(uint32_t(g), covers[g]);
      firstOf[g + 1] = size();
    }
  }

  /// Adds the owners' extents, and forwards where another device has their sum.
  void addOwners(const Cover &owners) {
    uint32_t at = firstOf[tree.size() - 1];
    for (const Extent &owner : owners)
      for (int64_t begin = owner.begin, end = 0; begin < owner.end; begin = end) {
        while (schedule.parts[at].end <= begin)
          ++at;
        end = std::min(owner.end, schedule.parts[at].end);
        uint32_t part = at;
        if (const uint32_t holder = schedule.parts[at].device; holder != owner.device) {
          add({begin, end, owner.device}, Part::kForward, {{holder, at}});
          part = size() - 1;
        }
        schedule.owned.push_back({{begin, end, owner.device}, part});
      }
  }

  Schedule take() { return std::move(schedule); }

private:
  uint32_t size() const { return uint32_t(schedule.parts.size()); }

  /// Adds the parts of a group: its cover, divided where a child's holder changes.
  void addGroup(uint32_t g, const Cover &cover) {
    const std::vector<Child> &children = tree[g].children;
    std::vector<uint32_t> at; // per child: the part that contains `begin`
    at.reserve(children.size());
    for (Child child : children)
      at.push_back(child.isContributor() ? Term::kContribution : firstOf[child.index()]);
    for (const Extent &extent : cover)
      for (int64_t begin = extent.begin, end = 0; begin < extent.end; begin = end) {
        end = extent.end;
        std::vector<Term> terms;
        for (size_t c = 0; c < children.size(); ++c) {
          if (children[c].isContributor()) {
            terms.push_back({children[c].device(), Term::kContribution});
            continue;
          }
          while (schedule.parts[at[c]].end <= begin)
            ++at[c];
          end = std::min(end, schedule.parts[at[c]].end);
          terms.push_back({schedule.parts[at[c]].device, at[c]});
        }
        add({begin, end, extent.device}, g, terms);
      }
  }

  void add(const Extent &extent, uint32_t group, const std::vector<Term> &terms) {
    schedule.parts.push_back({extent.begin, extent.end, extent.device, group,
                              uint32_t(schedule.terms.size()), uint32_t(terms.size())});
    schedule.terms.insert(schedule.terms.end(), terms.begin(), terms.end());
  }

  const Tree &tree;
  std::vector<uint32_t> firstOf; ///< by group: its first part
  Schedule schedule;
};

} // namespace

Schedule zorse::collectives::makeSchedule(const Tree &tree, const std::vector<Cover> &covers,
                                          const Cover &owners) {
  ScheduleMaker maker(tree, covers);
  maker.addOwners(owners);
  return maker.take();
}
