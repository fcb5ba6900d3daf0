// Updates of a device's shards. State on the host is copied to the device part by part, updated,
// and copied back.
//
//   CLIP_AND_CHECK -> Copy p, m, g of part i from the host -> UPDATE (g, part i)
//     -> Copy p, m of part i to the host -> Copy of part i + 2
//
// Parts of at most two updates are on the device: one is copied while the other is updated (double
// buffering). Updates treat elements, or whole blocks, apart, so the division into parts changes
// no bit.
//
// State that the host's CPU updates stays on the host, and the decision is copied there:
//
//   CLIP_AND_CHECK -> Copy of the scalars and the optimizer step to the host -+
//   NORM g -> Copy of the reduced gradients to the host ----------------------+
//     -> UPDATE g in the host's memory
//
// If updates wait for copies, or if groups commit inside the backward, updates have a separate
// queue, so that only instructions that read their results wait for them.

#include "PlanLowering.h"

#include "zorse/Summary/FlatGroups.h"

#include <algorithm>
#include <array>
#include <tuple>

using namespace zorse::step;

namespace {

namespace bundle = zorse::bundle;

constexpr size_t kPartsAtOnce = 2;

class Updater {
public:
  Updater(PlanLowering &x, uint32_t device, uint32_t decision)
      : x(x), device(device), decision(decision), ofParameters(x, /*statistics=*/false),
        ofStatistics(x, /*statistics=*/true) {}

  void run(const std::vector<GroupUpdate> &updates) {
    const bool comes = std::any_of(updates.begin(), updates.end(), [](const GroupUpdate &u) {
      return !u.groupState->at.onDevice();
    });
    queue = comes || x.plan.optimizerStep == OptimizerStep::InBackward ? kUpdate : kCompute;
    crossesStep = comes && x.plan.optimizerStep == OptimizerStep::AfterBackward;
    known = {x.scalars[device], x.optimizerStep[device]};
    if (crossesStep)
      keepScalars();
    for (const GroupUpdate &one : updates) {
      const GroupState &h = *one.groupState;
      // Large groups have larger parts, so that the length of a program does not grow with the
      // model.
      constexpr uint64_t kMaxParts = 32;
      const uint64_t bytes = static_cast<uint64_t>(h.owned.elements()) * size(h.group);
      const uint64_t min = (bytes / kMaxParts + kStateAlignment - 1) / kStateAlignment *
                           kStateAlignment;
      const auto part =
          static_cast<int64_t>(std::max(x.options.updateBucketBytes, min) / size(h.group));
      for (size_t r = 0; r < h.owned.runs().size(); ++r) {
        const Compact::Run &run = h.owned.runs()[r];
        const uint32_t left = one.hostGradients.empty() ? kNone : one.hostGradients[r];
        partElements = run.end - run.begin;
        if (h.at.update == MemoryTier::Host) {
          updateOnHost(one, run, left);
          continue;
        }
        for (int64_t begin = run.begin, end = 0; begin < run.end; begin = end) {
          end = h.at.onDevice() ? run.end : borderAfter(h.group, begin, begin + part, run.end);
          partElements = end - begin;
          if (const int64_t joined = joinedElements(run); !h.at.onDevice() && joined > partElements)
            end = borderAfter(h.group, begin, begin + joined, run.end);
          update(one, run, left, begin, end);
        }
      }
    }
  }

private:
  using BufferRange = UpdateOp::BufferRange;
  using Arrays = UpdateOp::Arrays;

  /// The arguments that update functions have.
  struct Arguments {
    std::array<bool, std::tuple_size_v<Arrays>> state = {};
    bool scalars = false, step = false;

    Arguments(const PlanLowering &x, bool statistics) {
      for (const bundle::UpdateRule &rule : x.summary.update_rules()) {
        if (rule.running_stat() != statistics)
          continue;
        scalars |= x.functionHas(rule.function(), bundle::SCALARS, 0);
        step |= x.functionHas(rule.function(), bundle::OPTIMIZER_STEP, 0);
        for (uint32_t i = 0; i < 2 + static_cast<uint32_t>(rule.states_size()); ++i)
          state[i] |= x.functionHas(rule.function(), bundle::STATE, i);
      }
    }
  };

  /// Returns the end of a part that begins at `begin`: `wanted`, or the next place at which the
  /// group may be divided.
  int64_t borderAfter(uint32_t g, int64_t begin, int64_t wanted, int64_t last) const {
    if (wanted >= last)
      return last;
    if (!zorse::updatesBlocks(x.summary, x.summary.groups(static_cast<int>(g))))
      return wanted;
    int64_t low = wanted, high = last;
    while (low < high) { // the first position after `wanted` with a border behind `begin`
      const int64_t middle = low + (high - low) / 2;
      if (zorse::ownerBorder(x.summary, g, middle) > begin)
        high = middle;
      else
        low = middle + 1;
    }
    return low == last ? last : zorse::ownerBorder(x.summary, g, low);
  }

  /// Number of elements that one op updates in simulations with joined parts; otherwise 0.
  int64_t joinedElements(const Compact::Run &run) const {
    const int64_t parts = x.options.simulatedUpdateParts;
    return parts == 0 ? 0 : (run.end - run.begin + parts - 1) / parts;
  }

  uint64_t size(uint32_t g) const { return elementBytes(x.summary.groups(g).type()); }

  /// Returns an array with an owned run at a position of a buffer.
  static BufferRange at(uint32_t buffer, const Compact::Run &run, int64_t place) {
    return {buffer, run.begin - place};
  }
  static BufferRange at(uint32_t buffer, const Compact::Run &run) {
    return at(buffer, run, run.place);
  }

  /// Adds the update of elements of an owned run. \param left  op that copied its gradients to the
  /// host, or kNone
  void update(const GroupUpdate &one, const Compact::Run &run, uint32_t left, int64_t begin,
              int64_t end) {
    const GroupState &h = *one.groupState;
    const uint32_t g = h.group;
    brought.clear();
    const Value gradientsValue = Value::reducedGradients(g, {begin, end});
    Arrays arrays = {bring(Value::parameters(g, {begin, end}),
                           h.readsPersistentBuffer ? at(h.persistentShard, run, h.position(run))
                                                   : at(h.persistentShard, run),
                           h.at.parameters, true),
                     h.at.gradients == MemoryTier::Host
                         ? bring(gradientsValue, at(h.hostGradients, run), MemoryTier::Host, false)
                         : at(h.reduced, run, h.reducedPosition(run))};
    if (left != kNone)
      x.addEdge(left, brought.back().fetch);
    for (uint32_t m = 0; m < x.statesOf(g); ++m)
      arrays[2 + m] = bringState(h, m, run, begin, end);

    const uint32_t op = x.addOp(x.costs->update(device, x.updateWork(g, begin, end)),
                                kShortPriority, 0, x.firstUnit(g));
    compute(op, one, arrays, begin, end, MemoryTier::Device, known);
    x.addEdge(kept == kNone ? decision : kept, op);
    sendBack(op);
  }

  /// Adds the update of a whole run, on the host.
  void updateOnHost(const GroupUpdate &one, const Compact::Run &run, uint32_t left) {
    const GroupState &h = *one.groupState;
    Arrays arrays = {at(h.persistentShard, run), at(h.hostGradients, run)};
    for (uint32_t m = 0; m < x.statesOf(h.group); ++m)
      arrays[2 + m] = stateAt(h, m, run);
    if (decided.copies.empty())
      copyDecision();
    const uint32_t op =
        x.addOp(x.costs->hostUpdate(device, x.updateWork(h.group, run.begin, run.end)),
                kShortPriority, 0, x.firstUnit(h.group));
    compute(op, one, arrays, run.begin, run.end, MemoryTier::Host, decided.here);
    x.addEdge(left, op);
    for (uint32_t copy : decided.copies)
      x.addEdge(copy, op);
  }

  /// Buffers of the scalars and of the optimizer step that an update reads.
  struct Decision {
    uint32_t scalars, step;
  };

  /// Copies the scalars, because the next step's scalars are loaded while updates still need those
  /// of this step.
  void keepScalars() {
    known.scalars = x.addBuffer(device, kScalarsBytes, MemoryCategory::UpdateStaging);
    x.buffers[known.scalars].crossesStep = true;
    kept = x.addOp(x.costs->copy(device, kScalarsBytes), kShortPriority, 0, 0);
    x.addInstruction(device, queue);
    x.describeCopy(region(x.scalars[device], 0, kScalarsBytes),
                   region(known.scalars, 0, kScalarsBytes), Value::scalars(1),
                   bundle::UPDATE_STATE);
    x.addAccess(kept, x.scalars[device]);
    x.addAccess(kept, known.scalars);
    x.addEdge(decision, kept);
  }

  /// Copies the decision to the host, once.
  void copyDecision() {
    auto copy = [&](uint32_t from, uint64_t bytes, Value value) {
      const uint32_t to = x.addBuffer(device, bytes, MemoryCategory::Staging, /*persistent=*/false,
                                      MemoryTier::Host);
      decided.copies.push_back(x.addTierCopy(device, kReport, bundle::UPDATE_STATE,
                                             region(from, 0, bytes), region(to, 0, bytes), value,
                                             x.ops[decision].priority));
      x.addEdge(decision, decided.copies.back());
      return to;
    };
    decided.here.scalars = copy(x.scalars[device], kScalarsBytes, Value::scalars(1));
    decided.here.step = copy(x.optimizerStep[device], zorse::optimizerStepBytes(x.summary),
                             Value::optimizerStep().next());
  }

  /// Makes the op added last an update. \param on  the processor and the memory of its arrays
  void compute(uint32_t op, const GroupUpdate &one, const Arrays &arrays, int64_t begin,
               int64_t end, MemoryTier on, Decision by) {
    const uint32_t g = one.groupState->group;
    for (uint32_t before : one.after)
      x.addEdge(before, op);
    x.addInstruction(device, on == MemoryTier::Host ? kHostUpdate : queue);
    x.describe(OpKind::Update, static_cast<uint32_t>(x.updates.size()));
    x.updates.push_back({g, begin, end, arrays, by.scalars, by.step});
    if (!x.hasRuns(g, begin, end))
      return;
    touch(op, g, arrays, by);
    if (const uint64_t bytes = x.updateWorkspace(g, begin, begin + partElements))
      x.addAccess(op, x.updates.back().workspace = workspace(bytes, on));
  }

  uint32_t workspace(uint64_t bytes, MemoryTier on) {
    const uint32_t buffer =
        on == MemoryTier::Host
            ? x.addBuffer(device, bytes, MemoryCategory::Staging, /*persistent=*/false, on)
            : x.addBuffer(device, bytes, MemoryCategory::UpdateStaging);
    x.buffers[buffer].crossesStep = on == MemoryTier::Device && crossesStep;
    return buffer;
  }

  void touch(uint32_t op, uint32_t g, const Arrays &arrays, Decision by) {
    const Arguments &has = x.summary.groups(static_cast<int>(g)).running_stat() ? ofStatistics
                                                                                : ofParameters;
    const size_t states = 2 + x.statesOf(g);
    for (size_t i = 0; i < states; ++i)
      if (has.state[i])
        x.addAccess(op, arrays[i].buffer);
    if (has.scalars)
      x.addAccess(op, by.scalars);
    if (has.step)
      x.addAccess(op, by.step);
  }

  struct PrefetchedState {
    Value value;
    BufferRange persistentShard, here;
    uint64_t each;          ///< bytes of an element
    uint32_t fetch = kNone; ///< op
    bool changes = false;
  };

  /// Returns an optimizer state of an owned run in its home.
  BufferRange stateAt(const GroupState &h, uint32_t m, const Compact::Run &run) {
    const zorse::StateLayout &layout = x.stateLayout(h.group, m);
    int64_t place = 0; // the entries of earlier runs
    for (const Compact::Run &earlier : h.owned.runs())
      if (earlier.begin < run.begin)
        place += layout.begin(earlier.end) - layout.begin(earlier.begin);
    return {h.moments[m], layout.begin(run.begin) - place};
  }

  BufferRange bringState(const GroupState &h, uint32_t m, const Compact::Run &run, int64_t begin,
                         int64_t end) {
    const BufferRange home = stateAt(h, m, run);
    if (h.at.moments == MemoryTier::Device)
      return home;
    const zorse::StateLayout &layout = x.stateLayout(h.group, m);
    const Value value = Value::moments(h.group, m, {layout.begin(begin), layout.begin(end)});
    return fetch(value, home, layout.begin(begin + partElements) - value.begin,
                 elementBytes(layout.type()), true);
  }

  /// Copies an array to the device if it is on the host. \returns the location of elements
  /// [value.begin, value.end) for the update
  BufferRange bring(Value value, BufferRange home, MemoryTier tier, bool changes) {
    return tier == MemoryTier::Device ? home
                                      : fetch(value, home, partElements, size(value.id), changes);
  }

  /// \param part  number of its elements that are on the device at a time
  BufferRange fetch(Value value, BufferRange home, int64_t part, uint64_t each, bool changes) {
    const uint64_t bytes = static_cast<uint64_t>(part) * each;
    const BufferRange here{x.addBuffer(device, bytes, MemoryCategory::UpdateStaging), value.begin};
    x.buffers[here.buffer].crossesStep = crossesStep;
    const uint32_t fetch = x.addTierCopy(device, kFetch, bundle::UPDATE_STATE,
                                         at(home, value, each), at(here, value, each), value,
                                         priorityOf(kShortPriority, 0, x.firstUnit(value.id)));
    x.addEdge(decision, fetch);
    if (buckets.size() >= kPartsAtOnce)
      for (uint32_t op : buckets[buckets.size() - kPartsAtOnce])
        x.addEdge(op, fetch);
    brought.push_back({value, home, here, each, fetch, changes});
    return here;
  }

  static Region at(const BufferRange &array, const Value &value, uint64_t each) {
    return elementRegion(array.buffer, value.begin - array.base, value.end - value.begin, each);
  }

  void sendBack(uint32_t op) {
    if (brought.empty())
      return;
    std::vector<uint32_t> leave{op};
    for (PrefetchedState &b : brought) {
      x.addEdge(b.fetch, op);
      if (!b.changes)
        continue;
      b.value = b.value.next();
      leave.push_back(
          x.addTierCopy(device, kStore, bundle::UPDATE_STATE, at(b.here, b.value, b.each),
                        at(b.persistentShard, b.value, b.each), b.value, x.ops[op].priority));
      x.addEdge(op, leave.back());
    }
    buckets.push_back(std::move(leave));
  }

  PlanLowering &x;
  const uint32_t device, decision;
  const Arguments ofParameters, ofStatistics;
  QueueIndex queue = kCompute;
  int64_t partElements = 0;     ///< of a part on the device
  bool crossesStep = false;     ///< updates overlap the next step
  Decision known{kNone, kNone}; ///< on the device
  uint32_t kept = kNone;        ///< op that copies the scalars for them
  struct {
    std::vector<uint32_t> copies; ///< ops; empty: no update on the host needs it yet
    Decision here;
  } decided;                            ///< on the host
  std::vector<PrefetchedState> brought; ///< arrays copied from the host for the current update
  std::vector<std::vector<uint32_t>> buckets; ///< per earlier update: ops after which none of its
                                              ///< arrays is on the device
};

} // namespace

void zorse::step::lowerUpdates(PlanLowering &x, uint32_t device, uint32_t decision,
                               const std::vector<GroupUpdate> &updates) {
  Updater(x, device, decision).run(updates);
}
