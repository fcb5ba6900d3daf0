// Updates of what a device owns. What it keeps on the host comes for them, part by part, and goes back.
//
//   DECIDE -> Copy p, m, g of part i from the host -> UPDATE (g, part i) -> Copy p, m of part i to the host -> Copy of part i + 2
//
// Parts of two updates at most are on the device: one comes or goes while the other is updated. An update works element by element, so parts change
// no bit.

#include "Expansion.h"

#include <algorithm>

using namespace zorse::step;

namespace {

namespace bundle = zorse::bundle;

constexpr size_t kPartsAtOnce = 2;

class Updater {
public:
  Updater(Expansion &x, uint32_t device, uint32_t decision) : x(x), device(device), decision(decision) {}

  /// Early units first: the next step gathers and forwards them first.
  void run() {
    std::vector<const Holding *> owned;
    for (const Holding &h : x.holdings[device])
      if (h.owns())
        owned.push_back(&h);
    std::stable_sort(owned.begin(), owned.end(), [&](auto *a, auto *b) { return x.firstUnit(a->group) < x.firstUnit(b->group); });
    for (const Holding *h : owned) {
      // Of large groups larger parts: a program's length should not grow with the model.
      constexpr uint64_t kMostParts = 32;
      const uint64_t bytes = static_cast<uint64_t>(h->end - h->begin) * size(h->group);
      const uint64_t least = (bytes / kMostParts + kStateAlignment - 1) / kStateAlignment * kStateAlignment;
      const auto part = static_cast<int64_t>(std::max(x.options.updatePart, least) / size(h->group));
      for (int64_t begin = h->begin, end = 0; begin < h->end; begin = end) {
        end = h->at.onDevice() ? h->end : std::min(begin + part, h->end);
        update(*h, begin, end);
      }
    }
  }

private:
  /// Where an array of a group begins: its element `base` is the buffer's first.
  struct Where {
    uint32_t buffer = kNone;
    int64_t base = 0;
  };

  uint64_t size(uint32_t g) const { return elementBytes(x.summary.groups(g).type()); }

  void update(const Holding &h, int64_t begin, int64_t end) {
    const uint32_t g = h.group;
    brought.clear();
    const Value gradientsValue{bundle::Value::REDUCED_GRADIENTS, g, 0, begin, end, 0};
    Where arrays[4] = {bring({bundle::Value::PARAMETERS, g, 0, begin, end, 0}, {h.home, h.readsHome ? h.base() : h.begin}, h.at.parameters, true),
                       h.at.gradients == Tier::Host ? bring(gradientsValue, {h.left, h.begin}, Tier::Host, false)
                                                    : Where{h.reduced, h.reducedBase()}};
    for (uint32_t m = 0; m < x.summary.moments(); ++m)
      arrays[2 + m] = bring({bundle::Value::MOMENTS, g, m, begin, end, 0}, {h.moments[m], h.begin}, h.at.moments, true);

    const uint32_t op = x.addOp(x.costs->update(device, end - begin), kShortRank, 0, x.firstUnit(g));
    x.addEdge(decision, op);
    Entry &entry = x.addHalf(device, kCompute, EntryKind::Compute, bundle::UPDATE_STATE);
    entry.task = bundle::Compute::UPDATE_GROUP;
    entry.group = static_cast<int32_t>(g);
    for (uint32_t i = 0; i < 2 + x.summary.moments(); ++i)
      x.touch(op, arrays[i].buffer);
    for (const Expansion::Run &run : x.lean ? std::vector<Expansion::Run>() : x.runsOf(g, begin, end)) {
      auto at = [&](const Where &array) { return elementRegion(array.buffer, array.base, run.begin, run.end, size(g)); };
      x.addCall(run.decays ? x.summary.update_body_decay() : x.summary.update_body_plain(), -1, run.end - run.begin, 0);
      x.addSlot(bundle::SCALARS, 0, bundle::READ, region(x.scalars[device], 0, kScalarsBytes), {bundle::Value::STEP_SCALARS, 1, 0, 0, 0, 0});
      x.addSlot(bundle::STATE, 0, bundle::UPDATE, at(arrays[0]), {bundle::Value::PARAMETERS, g, 0, run.begin, run.end, 0});
      x.addSlot(bundle::STATE, 1, bundle::READ, at(arrays[1]), {bundle::Value::REDUCED_GRADIENTS, g, 0, run.begin, run.end, 0});
      for (uint32_t m = 0; m < x.summary.moments(); ++m)
        x.addSlot(bundle::STATE, 2 + m, bundle::UPDATE, at(arrays[2 + m]), {bundle::Value::MOMENTS, g, m, run.begin, run.end, 0});
      x.addSlot(bundle::OPTIMIZER_STEP_SLOT, 0, bundle::READ, region(x.optimizerStep[device], 0, 8), {bundle::Value::OPTIMIZER_STEP, 0, 0, 0, 0, 1});
    }
    sendBack(op);
  }

  struct Brought {
    Value value;
    Where home, here;
    uint32_t fetch = kNone; ///< op
    bool changes = false;
  };

  /// \returns where the update finds elements [value.begin, value.end)
  Where bring(Value value, Where home, Tier tier, bool changes) {
    if (tier == Tier::Device)
      return home;
    const uint64_t bytes = static_cast<uint64_t>(value.end - value.begin) * size(value.id);
    const Where here{x.addBuffer(device, bytes, Purpose::Images), value.begin};
    const uint32_t fetch =
        x.addTierCopy(device, kLoad, bundle::UPDATE_STATE, at(home, value), at(here, value), value, priorityOf(kShortRank, 0, x.firstUnit(value.id)));
    x.addEdge(decision, fetch);
    if (parts.size() >= kPartsAtOnce)
      for (uint32_t op : parts[parts.size() - kPartsAtOnce])
        x.addEdge(op, fetch);
    brought.push_back({value, home, here, fetch, changes});
    return here;
  }

  Region at(const Where &array, const Value &value) const { return elementRegion(array.buffer, array.base, value.begin, value.end, size(value.id)); }

  void sendBack(uint32_t op) {
    if (brought.empty())
      return;
    std::vector<uint32_t> leave{op};
    for (Brought &b : brought) {
      x.addEdge(b.fetch, op);
      if (!b.changes)
        continue;
      b.value.version = 1;
      leave.push_back(x.addTierCopy(device, kReport, bundle::UPDATE_STATE, at(b.here, b.value), at(b.home, b.value), b.value, x.ops[op].priority));
      x.addEdge(op, leave.back());
    }
    parts.push_back(std::move(leave));
  }

  Expansion &x;
  const uint32_t device, decision;
  std::vector<Brought> brought;             ///< for the update being added
  std::vector<std::vector<uint32_t>> parts; ///< of updates before: ops after which nothing of them is on the device
};

} // namespace

void zorse::step::expandUpdates(Expansion &x, uint32_t device, uint32_t decision) { Updater(x, device, decision).run(); }
