#include "Interpreter.h"

#include <algorithm>

using namespace zorse;
using namespace zorse::step;
using zorse::test::Outcome;

namespace {

uint64_t mix(uint64_t x) {
  x += 0x9E3779B97F4A7C15ull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}
template <typename... T> uint64_t mix(uint64_t a, T... rest) {
  if constexpr (sizeof...(rest) == 0)
    return mix(a);
  else
    return mix(mix(a) ^ mix(static_cast<uint64_t>(rest)...) * 3);
}

struct Digest {
  uint64_t state;
  void add(uint64_t word) { state = mix(state ^ word); }
  void add(const uint64_t *words, uint64_t n) {
    for (uint64_t i = 0; i < n; ++i)
      add(words[i]);
  }
};

constexpr uint64_t kScalarWords = 64, kSumWords = 32;

uint64_t scalarWord(uint64_t stepNumber, uint64_t w) { return mix(11, stepNumber, w); }
uint64_t inputWord(uint64_t input, uint64_t sample, uint64_t w, uint64_t stepNumber) { return mix(12, input, sample, w, stepNumber); }
uint64_t initialWord(uint64_t group, uint64_t element) { return mix(13, group, element); }
uint64_t elementsOf(const bundle::ParameterInfo &p) {
  uint64_t n = 1;
  for (int64_t dim : p.shape())
    n *= dim;
  return n;
}
uint64_t lossSum(uint64_t word, uint64_t sample) { return mix(14, word, sample); }
uint64_t decidedWord(uint64_t sums, uint64_t w) { return mix(15, sums, w); }
uint64_t updatedParameter(uint64_t p, uint64_t g, uint64_t m0, uint64_t m1, uint64_t scalars, uint64_t count, bool decays) {
  return mix(p, g, m0, m1, scalars, count, decays);
}
uint64_t updatedMoment(uint64_t m, uint64_t g, uint64_t which) { return mix(16, m, g, which); }

/// What a unit function sees of one row, in slot order.
struct RowInputs {
  uint64_t unit, sample, instance;
  Digest digest() const { return {mix(17, unit, sample, instance)}; }
};

uint64_t deferredWords(const bundle::UnitInfo &unit) { return unit.splits() ? static_cast<uint64_t>(unit.deferred_bytes().per_row()) / 4 : 0; }
uint64_t deferredWord(uint64_t digest, uint64_t w) { return mix(digest, 6, w); }

/// What the gradients of parameters are made of: all a backward reads, and what a B leaves for its W.
uint64_t withDeferred(const bundle::UnitInfo &unit, Digest digest) {
  uint64_t whole = digest.state;
  for (uint64_t w = 0; w < deferredWords(unit); ++w)
    digest.add(deferredWord(whole, w));
  return digest.state;
}

} // namespace

// ---------------------------------------------------------------------------------------------------------------------------------

Outcome zorse::test::runReference(const bundle::ModelSummary &summary, int64_t batch, int steps) {
  std::vector<std::vector<uint64_t>> parameters(summary.groups_size()), m0(summary.groups_size()), m1(summary.groups_size());
  for (int g = 0; g < summary.groups_size(); ++g) {
    parameters[g].resize(summary.groups(g).elements());
    for (size_t e = 0; e < parameters[g].size(); ++e)
      parameters[g][e] = initialWord(g, e);
    m0[g].assign(parameters[g].size(), 0);
    m1[g].assign(parameters[g].size(), 0);
  }
  Outcome outcome;
  for (int k = 1; k <= steps; ++k) {
    std::vector<uint64_t> scalars(kScalarWords), sums(kSumWords, 0);
    for (uint64_t w = 0; w < kScalarWords; ++w)
      scalars[w] = scalarWord(k, w);
    std::vector<std::vector<uint64_t>> gradients(summary.groups_size());
    for (int g = 0; g < summary.groups_size(); ++g)
      gradients[g].assign(parameters[g].size(), 0);

    for (int64_t sample = 0; sample < batch; ++sample) {
      std::vector<std::vector<uint64_t>> values(summary.values_size()), valueGradients(summary.values_size()), saved(summary.units_size());
      auto start = [&](int u) {
        const auto &unit = summary.units(u);
        Digest d = RowInputs{static_cast<uint64_t>(u), static_cast<uint64_t>(sample), unit.instance_base()}.digest();
        for (uint32_t p : unit.parameters())
          d.add(parameters[summary.parameters(p).group()].data() + summary.parameters(p).offset(), elementsOf(summary.parameters(p)));
        for (uint32_t in : unit.inputs())
          for (uint64_t w = 0; w < static_cast<uint64_t>(summary.inputs(in).bytes_per_row()) / 4; ++w)
            d.add(inputWord(in, sample, w, k));
        for (uint32_t v : unit.values_in())
          d.add(values[v].data(), values[v].size());
        return d;
      };
      for (int u = 0; u < summary.units_size(); ++u) {
        const auto &unit = summary.units(u);
        Digest d = start(u);
        d.add(scalars.data(), scalars.size());
        for (int i = 0; i < unit.values_out_size(); ++i) {
          uint32_t v = unit.values_out(i);
          for (uint64_t w = 0; w < static_cast<uint64_t>(summary.values(v).bytes_per_row()) / 4; ++w)
            values[v].push_back(mix(d.state, 1, i, w));
          valueGradients[v].assign(values[v].size(), 0);
        }
        for (uint64_t w = 0; w < static_cast<uint64_t>(unit.saved_bytes().per_row()) / 4; ++w)
          saved[u].push_back(mix(d.state, 2, w));
        for (int i = 0; i < unit.loss_terms_size(); ++i)
          sums[4 + 2 * unit.loss_terms(i)] += lossSum(mix(d.state, 3, i), sample);
      }
      for (int u = summary.units_size() - 1; u >= 0; --u) {
        const auto &unit = summary.units(u);
        Digest d = start(u);
        for (uint32_t v : unit.values_out())
          if (summary.values(v).needs_gradient())
            d.add(valueGradients[v].data(), valueGradients[v].size());
        d.add(saved[u].data(), saved[u].size());
        d.add(scalars.data(), scalars.size());
        uint64_t weights = withDeferred(unit, d);
        for (int i = 0; i < unit.parameters_size(); ++i) {
          const auto &p = summary.parameters(unit.parameters(i));
          if (p.trainable())
            for (uint64_t w = 0; w < elementsOf(p); ++w)
              gradients[p.group()][p.offset() + w] += mix(weights, 4, i, w);
        }
        for (int i = 0; i < unit.values_in_size(); ++i)
          if (summary.values(unit.values_in(i)).needs_gradient())
            for (uint64_t w = 0; w < valueGradients[unit.values_in(i)].size(); ++w)
              valueGradients[unit.values_in(i)][w] += mix(d.state, 5, i, w);
      }
    }

    for (const auto &p : summary.parameters())
      if (p.trainable())
        for (uint64_t w = 0; w < elementsOf(p); ++w)
          sums[0] += mix(gradients[p.group()][p.offset() + w]);
    Digest sumDigest{0};
    sumDigest.add(sums.data(), sums.size());
    for (uint64_t w = 16; w < 32; ++w)
      scalars[w] = decidedWord(sumDigest.state, w);
    Digest scalarDigest{0};
    scalarDigest.add(scalars.data(), scalars.size());
    for (const auto &p : summary.parameters())
      if (p.trainable())
        for (uint64_t e = p.offset(); e < p.offset() + elementsOf(p); ++e) {
          auto &w = parameters[p.group()][e];
          uint64_t g = gradients[p.group()][e], &a = m0[p.group()][e], &b = m1[p.group()][e];
          w = updatedParameter(w, g, a, b, scalarDigest.state, k, p.decays());
          a = updatedMoment(a, g, 0);
          b = updatedMoment(b, g, 1);
        }
    Digest report{scalarDigest.state};
    report.add(sums.data(), sums.size());
    outcome.reports.push_back(report.state);
  }
  outcome.parameters.resize(summary.groups_size());
  for (int g = 0; g < summary.groups_size(); ++g)
    for (uint32_t p : summary.groups(g).parameters())
      for (uint64_t w = 0; w < elementsOf(summary.parameters(p)); ++w)
        outcome.parameters[g].push_back(parameters[g][summary.parameters(p).offset() + w]);
  return outcome;
}

// ---------------------------------------------------------------------------------------------------------------------------------

namespace {

class Machine {
public:
  Machine(const bundle::ModelSummary &summary, const StepGraph &graph, int steps, uint64_t seed)
      : summary(summary), graph(graph), steps(steps), random(seed) {
    for (const DeviceProgram &device : graph.devices) {
      arenas.emplace_back();
      for (uint64_t i = 0; !device.arenas.empty() && i < device.arenas[0].bytes / 4; ++i)
        arenas.back().push_back(mix(seed, arenas.size(), i)); // poison
      queues.emplace_back(device.queues.size());
      done.emplace_back(device.queues.size(), 0);
    }
    for (size_t d = 0; d < graph.devices.size(); ++d)
      for (uint32_t e = graph.devices[d].entries.begin; e < graph.devices[d].entries.end; ++e)
        queues[d][graph.entries[e].queue].push_back(e);
    halvesOf.resize(graph.listLength);
    for (size_t d = 0; d < graph.devices.size(); ++d)
      for (uint32_t e = graph.devices[d].entries.begin; e < graph.devices[d].entries.end; ++e)
        halvesOf[graph.entries[e].id].push_back({static_cast<uint32_t>(d), e});
    for (size_t d = 0; d < graph.devices.size(); ++d)
      for (uint32_t s = graph.devices[d].state.begin; s < graph.devices[d].state.end; ++s)
        load(static_cast<uint32_t>(d), graph.state[s]);
  }

  bool run(Outcome &outcome, std::string &error) {
    struct Head {
      uint32_t device, queue;
    };
    std::vector<Head> heads;
    for (uint32_t d = 0; d < queues.size(); ++d)
      for (uint32_t q = 0; q < queues[d].size(); ++q)
        heads.push_back({d, q});
    uint64_t total = 0, executed = 0;
    for (auto &halves : halvesOf)
      total += halves.size() * steps;
    // Every trial prefers some queues, so that some run far ahead.
    std::vector<uint64_t> liking;
    for (size_t i = 0; i < heads.size(); ++i)
      liking.push_back(next() % 4);
    while (executed < total) {
      size_t begin = next() % heads.size();
      size_t chosen = SIZE_MAX;
      for (size_t i = 0; i < heads.size(); ++i) {
        size_t at = (begin + i) % heads.size();
        if (!runnable(heads[at].device, heads[at].queue))
          continue;
        if (chosen == SIZE_MAX || liking[at] > liking[chosen])
          chosen = at;
      }
      if (chosen == SIZE_MAX) {
        error = "deadlock after " + std::to_string(executed) + " of " + std::to_string(total) + " halves";
        return false;
      }
      executed += execute(heads[chosen].device, heads[chosen].queue);
      if (!failure.empty()) {
        error = failure;
        return false;
      }
    }
    outcome.reports = reports;
    outcome.parameters.assign(summary.groups_size(), {});
    std::vector<std::vector<uint64_t>> all(summary.groups_size());
    for (int g = 0; g < summary.groups_size(); ++g)
      all[g].assign(summary.groups(g).elements(), 0);
    for (size_t d = 0; d < graph.devices.size(); ++d)
      for (uint32_t s = graph.devices[d].state.begin; s < graph.devices[d].state.end; ++s) {
        const PersistentState &state = graph.state[s];
        if (state.value.kind == bundle::Value::PARAMETERS)
          for (int64_t e = state.value.begin; e < state.value.end; ++e)
            all[state.value.id][e] = at(static_cast<uint32_t>(d), state.region)[e - state.value.begin];
      }
    for (int g = 0; g < summary.groups_size(); ++g)
      for (uint32_t p : summary.groups(g).parameters())
        for (uint64_t w = 0; w < elementsOf(summary.parameters(p)); ++w)
          outcome.parameters[g].push_back(all[g][summary.parameters(p).offset() + w]);
    return true;
  }

private:
  uint64_t next() { return random = mix(random); }
  uint64_t *at(uint32_t device, const Region &r) { return arenas[device].data() + r.offset / 4; }

  void load(uint32_t device, const PersistentState &state) {
    uint64_t *words = at(device, state.region);
    for (uint64_t i = 0; i < state.region.bytes / 4; ++i)
      words[i] = state.value.kind == bundle::Value::PARAMETERS ? initialWord(state.value.id, state.value.begin + i) : 0;
  }

  uint64_t stepOf(uint32_t d, uint32_t q) const { return done[d][q] / queues[d][q].size(); }

  bool headReady(uint32_t d, uint32_t q) const {
    if (queues[d][q].empty() || done[d][q] >= queues[d][q].size() * steps)
      return false;
    uint64_t step = stepOf(d, q);
    const Entry &entry = graph.entries[queues[d][q][done[d][q] % queues[d][q].size()]];
    for (uint32_t w = entry.waits.begin; w < entry.waits.end; ++w) {
      const Wait &wait = graph.waits[w];
      if (wait.previousStep && step == 0)
        continue;
      uint64_t target = (wait.previousStep ? step - 1 : step) * queues[d][wait.queue].size() + wait.position;
      if (done[d][wait.queue] <= target)
        return false;
    }
    return true;
  }

  bool runnable(uint32_t d, uint32_t q) const {
    if (!headReady(d, q))
      return false;
    const Entry &entry = graph.entries[queues[d][q][done[d][q] % queues[d][q].size()]];
    for (auto [device, half] : halvesOf[entry.id]) {
      uint32_t other = graph.entries[half].queue;
      if (done[device][other] >= queues[device][other].size() * steps || queues[device][other][done[device][other] % queues[device][other].size()] != half ||
          stepOf(device, other) != stepOf(d, q) || !headReady(device, other))
        return false;
    }
    return true;
  }

  uint64_t execute(uint32_t d, uint32_t q) {
    uint64_t step = stepOf(d, q) + 1;
    uint32_t id = graph.entries[queues[d][q][done[d][q] % queues[d][q].size()]].id;
    const auto &halves = halvesOf[id];
    perform(halves, step);
    for (auto [device, half] : halves)
      ++done[device][graph.entries[half].queue];
    return halves.size();
  }

  using Halves = std::vector<std::pair<uint32_t, uint32_t>>;

  void perform(const Halves &halves, uint64_t step) {
    uint32_t d = halves[0].first;
    const Entry &entry = graph.entries[halves[0].second];
    switch (entry.kind) {
    case EntryKind::Compute:
      for (uint32_t c = entry.calls.begin; c < entry.calls.end; ++c)
        call(d, entry, graph.calls[c]);
      break;
    case EntryKind::Copy:
      std::copy_n(at(d, entry.region), entry.region.bytes / 4, at(d, entry.to));
      break;
    case EntryKind::Send:
    case EntryKind::Receive: {
      const Entry &a = graph.entries[halves[0].second], &b = graph.entries[halves[1].second];
      bool aSends = a.kind == EntryKind::Send;
      const Entry &s = aSends ? a : b, &r = aSends ? b : a;
      uint32_t sd = halves[aSends ? 0 : 1].first, rd = halves[aSends ? 1 : 0].first;
      if (s.peer != rd || r.peer != sd || s.region.bytes != r.region.bytes || !(s.value == r.value))
        failure = "halves of a transfer do not match";
      std::copy_n(at(sd, s.region), s.region.bytes / 4, at(rd, r.region));
      break;
    }
    case EntryKind::LoadInput: {
      uint64_t words = summary.inputs(entry.input).bytes_per_row() / 4;
      for (int64_t r = 0; r < entry.rows; ++r)
        for (uint64_t w = 0; w < words; ++w)
          at(d, entry.region)[r * words + w] = inputWord(entry.input, entry.sampleBase + r, w, step);
      break;
    }
    case EntryKind::LoadScalars:
      for (uint64_t w = 0; w < 128; ++w)
        at(d, entry.region)[w] = w < kScalarWords ? scalarWord(step, w) : 0;
      break;
    case EntryKind::AllGather:
      gather(halves);
      break;
    case EntryKind::ReduceScatter:
      reduce(halves);
      break;
    case EntryKind::AllReduce: {
      std::vector<uint64_t> sum(entry.region.bytes / 4, 0);
      for (auto [device, half] : halves)
        for (size_t w = 0; w < sum.size(); ++w)
          sum[w] += at(device, graph.entries[half].region)[w];
      for (auto [device, half] : halves)
        std::copy(sum.begin(), sum.end(), at(device, graph.entries[half].region));
      break;
    }
    case EntryKind::Report: {
      Digest digest{0};
      digest.add(at(d, entry.region), kScalarWords);
      Digest report{digest.state};
      report.add(at(d, entry.region) + kScalarWords, kSumWords);
      reports.push_back(report.state);
      break;
    }
    }
  }

  const Entry *halfOn(const Halves &halves, uint32_t device) const {
    for (auto [d, half] : halves)
      if (d == device)
        return &graph.entries[half];
    return nullptr;
  }

  void gather(const Halves &halves) {
    const Collective &c = graph.collectives[graph.entries[halves[0].second].collective];
    for (const auto &shard : c.shards) {
      const Entry *owner = halfOn(halves, shard.device);
      if (!owner || owner->to.bytes != static_cast<uint64_t>(shard.end - shard.begin) * 4) {
        failure = "an owner's half of a gather is missing or has another size";
        return;
      }
      std::vector<uint64_t> words(at(shard.device, owner->to), at(shard.device, owner->to) + (shard.end - shard.begin));
      for (uint32_t reader : c.members)
        std::copy(words.begin(), words.end(), at(reader, halfOn(halves, reader)->region) + shard.begin);
    }
  }

  void reduce(const Halves &halves) {
    const Collective &c = graph.collectives[graph.entries[halves[0].second].collective];
    std::vector<uint64_t> sum(summary.groups(c.group).elements(), 0);
    for (uint32_t contributor : c.members) {
      const Entry *half = halfOn(halves, contributor);
      for (size_t e = 0; e < sum.size(); ++e)
        sum[e] += at(contributor, half->region)[e];
      for (size_t e = 0; e < sum.size(); ++e) // whoever reads it afterwards reads nonsense
        at(contributor, half->region)[e] = mix(sum[e], e);
    }
    for (const auto &shard : c.shards)
      std::copy(sum.begin() + shard.begin, sum.begin() + shard.end, at(shard.device, halfOn(halves, shard.device)->to));
  }

  /// The slot of a call, or null.
  const Slot *find(const Call &call, bundle::SlotKind kind, uint32_t index) const {
    for (uint32_t s = call.slots.begin; s < call.slots.end; ++s)
      if (graph.slots[s].kind == kind && graph.slots[s].index == index)
        return &graph.slots[s];
    return nullptr;
  }

  void addSlot(Digest &digest, uint32_t d, const Call &call, bundle::SlotKind kind, uint32_t index, int64_t row) {
    const Slot *slot = find(call, kind, index);
    if (!slot) {
      failure = "a call lacks a slot";
      return;
    }
    if (slot->region.offset % 64)
      failure = "a slot does not start on a multiple of 64 bytes";
    uint64_t words = slot->region.bytes / 4;
    if (row < 0)
      return digest.add(at(d, slot->region), words);
    digest.add(at(d, slot->region) + words / call.rows * row, words / call.rows);
  }

  void call(uint32_t d, const Entry &entry, const Call &call) {
    if (call.unit >= 0)
      return unitCall(d, entry, call);
    uint64_t *sums = find(call, bundle::SUMS_SLOT, 0) ? at(d, find(call, bundle::SUMS_SLOT, 0)->region) : nullptr;
    switch (entry.task) {
    case bundle::Compute::SUM_LOSS:
      for (int k = 0; k < summary.loss_size(); ++k)
        for (int64_t r = 0; r < call.rows; ++r)
          sums[4 + 2 * k] += lossSum(at(d, find(call, bundle::LOSS, k)->region)[r], call.sampleBase + r);
      break;
    case bundle::Compute::NORM:
      for (int64_t e = 0; e < call.rows; ++e)
        sums[0] += mix(at(d, find(call, bundle::STATE, 1)->region)[e]);
      break;
    case bundle::Compute::DECIDE: {
      Digest digest{0};
      digest.add(sums, kSumWords);
      for (uint64_t w = 16; w < 32; ++w)
        at(d, find(call, bundle::SCALARS, 0)->region)[w] = decidedWord(digest.state, w);
      ++*at(d, find(call, bundle::OPTIMIZER_STEP_SLOT, 0)->region);
      break;
    }
    case bundle::Compute::UPDATE_GROUP: {
      Digest digest{0};
      digest.add(at(d, find(call, bundle::SCALARS, 0)->region), kScalarWords);
      uint64_t count = *at(d, find(call, bundle::OPTIMIZER_STEP_SLOT, 0)->region);
      bool decays = call.body == summary.update_body_decay();
      for (int64_t e = 0; e < call.rows; ++e) {
        uint64_t &p = at(d, find(call, bundle::STATE, 0)->region)[e];
        uint64_t g = at(d, find(call, bundle::STATE, 1)->region)[e];
        uint64_t &m0 = at(d, find(call, bundle::STATE, 2)->region)[e], &m1 = at(d, find(call, bundle::STATE, 3)->region)[e];
        p = updatedParameter(p, g, m0, m1, digest.state, count, decays);
        m0 = updatedMoment(m0, g, 0);
        m1 = updatedMoment(m1, g, 1);
      }
      break;
    }
    default:
      failure = "unknown task";
    }
  }

  void unitCall(uint32_t d, const Entry &entry, const Call &call) {
    const auto &unit = summary.units(call.unit);
    bool forward = entry.task == bundle::Compute::F;
    bool inputs = call.body == unit.input_gradient_body() && unit.splits(), weights = call.body == unit.weight_gradient_body() && unit.splits();
    if (forward ? call.body != unit.forward_body()
                : !(entry.task == bundle::Compute::B && inputs) && !(entry.task == bundle::Compute::W && weights) && call.body != unit.backward_body())
      failure = "a call has the wrong body";
    auto words = [&](const Slot *slot, int64_t row) { return at(d, slot->region) + slot->region.bytes / 4 / call.rows * row; };
    std::vector<uint64_t> digests;
    for (int64_t r = 0; r < call.rows; ++r) {
      Digest digest = RowInputs{static_cast<uint64_t>(call.unit), static_cast<uint64_t>(call.sampleBase + r), call.instanceBase}.digest();
      for (int i = 0; i < unit.parameters_size(); ++i)
        addSlot(digest, d, call, bundle::PARAMETER, i, -1);
      for (int i = 0; i < unit.inputs_size(); ++i)
        addSlot(digest, d, call, bundle::INPUT, i, r);
      for (int i = 0; i < unit.values_in_size(); ++i)
        addSlot(digest, d, call, bundle::BOUNDARY_IN, i, r);
      if (!forward) {
        for (int i = 0; i < unit.values_out_size(); ++i)
          if (summary.values(unit.values_out(i)).needs_gradient())
            addSlot(digest, d, call, bundle::BOUNDARY_OUT_GRADIENT, i, r);
        addSlot(digest, d, call, bundle::SAVED, 0, r);
      }
      addSlot(digest, d, call, bundle::SCALARS, 0, -1);
      digests.push_back(digest.state);
    }
    if (!failure.empty())
      return;
    const Slot *deferred = find(call, bundle::DEFERRED, 0);
    if ((inputs || weights) != (deferred != nullptr) && deferredWords(unit) != 0) {
      failure = "a call has a deferred block, and should not, or the reverse";
      return;
    }
    std::vector<uint64_t> weightDigests;
    for (int64_t r = 0; r < call.rows; ++r) {
      for (uint64_t w = 0; inputs && w < deferredWords(unit); ++w)
        words(deferred, r)[w] = deferredWord(digests[r], w);
      Digest digest{digests[r]};
      if (weights && deferred)
        digest.add(words(deferred, r), deferredWords(unit));
      weightDigests.push_back(weights ? digest.state : withDeferred(unit, digest));
    }
    if (const Slot *scratch = find(call, bundle::WORKSPACE, 0))
      for (uint64_t w = 0; w < scratch->region.bytes / 4; ++w)
        at(d, scratch->region)[w] = next();
    if (forward) {
      for (int64_t r = 0; r < call.rows; ++r) {
        for (int i = 0; i < unit.values_out_size(); ++i) {
          const Slot *slot = find(call, bundle::BOUNDARY_OUT, i);
          for (uint64_t w = 0; w < slot->region.bytes / 4 / call.rows; ++w)
            words(slot, r)[w] = mix(digests[r], 1, i, w);
        }
        const Slot *saved = find(call, bundle::SAVED, 0);
        for (uint64_t w = 0; w < saved->region.bytes / 4 / call.rows; ++w)
          words(saved, r)[w] = mix(digests[r], 2, w);
        for (int i = 0; i < unit.loss_terms_size(); ++i)
          words(find(call, bundle::LOSS, i), r)[0] = mix(digests[r], 3, i);
      }
      return;
    }
    for (int i = 0; i < unit.parameters_size(); ++i) {
      const Slot *slot = find(call, bundle::PARAMETER_GRADIENT, i);
      if (!slot)
        continue;
      uint64_t *gradient = at(d, slot->region);
      for (uint64_t w = 0; w < slot->region.bytes / 4; ++w) {
        uint64_t sum = slot->overwrite ? 0 : gradient[w];
        for (uint64_t digest : weightDigests)
          sum += mix(digest, 4, i, w);
        gradient[w] = sum;
      }
    }
    for (int i = 0; i < unit.values_in_size(); ++i) {
      const Slot *slot = find(call, bundle::BOUNDARY_IN_GRADIENT, i);
      if (!slot)
        continue;
      for (int64_t r = 0; r < call.rows; ++r)
        for (uint64_t w = 0; w < slot->region.bytes / 4 / call.rows; ++w)
          words(slot, r)[w] = (slot->overwrite ? 0 : words(slot, r)[w]) + mix(digests[r], 5, i, w);
    }
  }

  const bundle::ModelSummary &summary;
  const StepGraph &graph;
  uint64_t steps;
  uint64_t random;
  std::vector<std::vector<uint64_t>> arenas;
  std::vector<std::vector<std::vector<uint32_t>>> queues;
  std::vector<std::vector<uint64_t>> done;
  std::vector<std::vector<std::pair<uint32_t, uint32_t>>> halvesOf;
  std::vector<uint64_t> reports;
  std::string failure;
};

} // namespace

bool zorse::test::runGraph(const bundle::ModelSummary &summary, const StepGraph &graph, int steps, uint64_t seed, Outcome &outcome, std::string &error) {
  return Machine(summary, graph, steps, seed).run(outcome, error);
}
