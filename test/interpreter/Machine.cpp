// Runs the programs of all devices: queues, waits, rendezvous and a scheduler that picks what happens next.
#include "Bodies.h"
#include "Interpreter.h"

#include <algorithm>
#include <memory>
#include <random>
#include <set>

using namespace zorse;
using namespace zorse::interpret;

namespace {

struct Stop {
  Outcome::Kind kind;
  std::string what;
};

/// Bytes [begin, end) of an arena of a device.
struct Span {
  uint32_t device, arena;
  int64_t begin, end;
  bool write;
  bool conflicts(const Span &o) const { return device == o.device && arena == o.arena && begin < o.end && o.begin < end && (write || o.write); }
};

/// Work between its start and its end: a call of a compute entry, or a whole transfer or collective with all its halves.
struct Active {
  std::vector<std::pair<uint32_t, uint32_t>> queues; ///< (device, queue) of every half
  std::vector<Span> spans;
  std::vector<std::pair<Span, Words>> writes;        ///< what the end stores
  bool lastCall = true;
  uint32_t entry = 0;
};

class Machine {
public:
  Machine(const bundle::ModelSummary &summary, const bundle::BodyLibrary &bodies, const std::vector<bundle::Program> &programs, int steps, const Interleaving &how)
      : summary(summary), bodies(bodies), programs(programs), steps(steps), how(how), random(how.seed) {}

  Outcome run() {
    Outcome outcome;
    try {
      prepare();
      while (act())
        ;
      finish(outcome.result);
    } catch (const Stop &stop) {
      outcome.kind = stop.kind;
      outcome.what = stop.what;
    }
    return outcome;
  }

private:
  const bundle::ModelSummary &summary;
  const bundle::BodyLibrary &bodies;
  const std::vector<bundle::Program> &programs;
  int steps;
  Interleaving how;
  std::mt19937 random;

  struct QueueState {
    std::vector<int> entries; ///< indices in the program
    size_t started = 0;       ///< entries finished, over all steps; the current one is this
    int call = 0;             ///< next call of the current entry
    bool busy = false;
    uint32_t rank = 0;
  };
  std::vector<std::vector<QueueState>> queues;
  std::vector<std::vector<Words>> arenas;
  std::vector<std::unique_ptr<Active>> active;
  std::map<uint32_t, size_t> deviceOf; ///< device number -> index of its program
  std::vector<std::vector<uint64_t>> reports;
  uint32_t victimDevice = 0, victimEntry = 0;
  bool victimStarts = false;

  [[noreturn]] void invalid(const std::string &what) { throw Stop{Outcome::Invalid, what}; }

  void prepare() {
    for (size_t p = 0; p < programs.size(); ++p) {
      const auto &program = programs[p];
      if (!deviceOf.emplace(program.device(), p).second)
        invalid("two programs for one device");
      std::vector<QueueState> list(program.queues_size());
      for (int e = 0; e < program.entries_size(); ++e) {
        if (program.entries(e).queue() >= list.size())
          invalid("queue out of range");
        if (e && program.entries(e).id() <= program.entries(e - 1).id())
          invalid("ids do not ascend");
        list[program.entries(e).queue()].entries.push_back(e);
      }
      for (auto &queue : list)
        queue.rank = random();
      queues.push_back(std::move(list));
      std::vector<Words> memory;
      for (const auto &arena : program.arenas()) {
        if (arena.bytes() > (1u << 26))
          invalid("arena too large for the interpreter");
        Words words((arena.bytes() + 3) / 4);
        for (uint64_t &word : words)
          word = poison();
        memory.push_back(std::move(words));
      }
      arenas.push_back(std::move(memory));
      for (const auto &state : program.state()) {
        Span where = span(p, state.region(), 0, int64_t(state.region().bytes()), true);
        const auto &value = state.value();
        Words words;
        if (value.kind() == bundle::Value::OPTIMIZER_STEP) {
          words.assign(size_t(where.end - where.begin) / 4, 0);
        } else {
          for (int64_t e = value.begin(); e < value.end() && words.size() < size_t(where.end - where.begin) / 4; ++e)
            words.push_back(padding(value.id(), e) ? 0 : initialWord(value.kind(), value.id(), value.cut(), e));
          words.resize(size_t(where.end - where.begin) / 4);
        }
        store(where, words);
      }
    }
    reports.resize(size_t(steps) + 1);
    std::vector<std::pair<uint32_t, uint32_t>> all;
    for (size_t p = 0; p < programs.size(); ++p)
      for (int e = 0; e < programs[p].entries_size(); ++e)
        all.push_back({uint32_t(p), uint32_t(e)});
    if (!all.empty())
      std::tie(victimDevice, victimEntry) = all[random() % all.size()];
    victimStarts = random() % 2;
  }

  uint64_t poison() { return mix(uint64_t(random()) << 32 | random()); }

  bool padding(uint32_t group, int64_t element) const {
    for (uint32_t p : summary.groups(int(group)).parameters()) {
      const auto &parameter = summary.parameters(int(p));
      int64_t elements = 1;
      for (int64_t extent : parameter.shape())
        elements *= extent;
      if (element >= parameter.offset() && element < parameter.offset() + elements)
        return false;
    }
    return true;
  }

  Span span(size_t p, const bundle::Region &region, int64_t from, int64_t to, bool write) {
    if (region.arena() >= arenas[p].size())
      invalid("arena out of range");
    uint64_t size = programs[p].arenas(int(region.arena())).bytes();
    if (region.offset() > size || uint64_t(to) > size - region.offset() || to < from || from < 0)
      invalid("region out of bounds");
    if (region.offset() % 4 || from % 4 || to % 4)
      invalid("region not aligned");
    return {uint32_t(p), region.arena(), int64_t(region.offset()) + from, int64_t(region.offset()) + to, write};
  }
  Words fetch(const Span &s) const {
    const Words &memory = arenas[s.device][s.arena];
    return Words(memory.begin() + s.begin / 4, memory.begin() + s.end / 4);
  }
  void store(const Span &s, const Words &words) { std::copy(words.begin(), words.end(), arenas[s.device][s.arena].begin() + s.begin / 4); }
  void spoil(const Span &s) {
    for (int64_t w = s.begin / 4; w < s.end / 4; ++w)
      arenas[s.device][s.arena][size_t(w)] = poison();
  }

  // -------------------------------------------------------------------------------------------------------------------------------
  // What can happen.

  int stepOf(const QueueState &queue) const { return queue.entries.empty() ? steps + 1 : int(queue.started / queue.entries.size()); }
  const bundle::Entry *head(size_t p, size_t q) const {
    const auto &queue = queues[p][q];
    if (queue.busy || stepOf(queue) > steps)
      return nullptr;
    return &programs[p].entries(queue.entries[queue.started % queue.entries.size()]);
  }
  bool ready(size_t p, size_t q, const bundle::Entry &entry) {
    int step = stepOf(queues[p][q]);
    for (const auto &wait : entry.waits()) {
      if (wait.queue() >= queues[p].size() || wait.position() >= queues[p][wait.queue()].entries.size())
        invalid("wait out of range");
      if (wait.previous_step() && step == 0)
        continue;
      const auto &target = queues[p][wait.queue()];
      if (target.started <= size_t(step - (wait.previous_step() ? 1 : 0)) * target.entries.size() + wait.position())
        return false;
    }
    return true;
  }
  static bool inEvaluation(const bundle::Entry &entry) {
    return entry.phase() == bundle::LOAD || entry.phase() == bundle::GATHER || entry.phase() == bundle::FORWARD || entry.phase() == bundle::REPORT;
  }

  /// Devices whose halves must meet; empty: a local entry.
  static std::vector<uint32_t> meeting(const bundle::Entry &entry, uint32_t self) {
    std::set<uint32_t> members;
    auto add = [&](const auto &list) { members.insert(list.begin(), list.end()); };
    if (entry.has_send())
      members = {self, entry.send().peer()};
    else if (entry.has_receive())
      members = {self, entry.receive().peer()};
    else if (entry.has_all_gather()) {
      add(entry.all_gather().readers());
      add(entry.all_gather().shards().members());
    } else if (entry.has_reduce_scatter()) {
      add(entry.reduce_scatter().contributors());
      add(entry.reduce_scatter().shards().members());
    } else if (entry.has_all_reduce()) {
      add(entry.all_reduce().members());
    } else if (entry.has_broadcast()) {
      add(entry.broadcast().members());
      members.insert(entry.broadcast().root());
    }
    return {members.begin(), members.end()};
  }

  struct Half {
    size_t program, queue;
    const bundle::Entry *entry;
  };
  /// All halves at the heads of their queues with their waits satisfied, in the same step; or nothing.
  std::vector<Half> meet(size_t p, size_t q, const bundle::Entry &entry) {
    std::vector<Half> halves;
    for (uint32_t device : meeting(entry, programs[p].device())) {
      auto it = deviceOf.find(device);
      if (it == deviceOf.end())
        return {};
      bool found = false;
      for (size_t other = 0; other < queues[it->second].size() && !found; ++other)
        if (const bundle::Entry *half = head(it->second, other);
            half && half->id() == entry.id() && stepOf(queues[it->second][other]) == stepOf(queues[p][q]) && ready(it->second, other, *half)) {
          halves.push_back({it->second, other, half});
          found = true;
        }
      if (!found)
        return {};
    }
    return halves;
  }

  struct Action {
    bool ends = false;
    size_t index = 0;          ///< ends: of the active work
    std::vector<Half> halves;  ///< starts
    uint32_t rank = 0;
    bool victim = false;
  };

  /// One thing happens; false: everything is done.
  bool act() {
    std::vector<Action> actions;
    bool unfinished = !active.empty();
    for (size_t i = 0; i < active.size(); ++i) {
      Action action;
      action.ends = true;
      action.index = i;
      auto [p, q] = active[i]->queues[0];
      action.rank = queues[p][q].rank;
      for (auto [device, queue] : active[i]->queues)
        action.victim = action.victim || (!victimStarts && device == victimDevice && active[i]->entry == programs[device].entries(int(victimEntry)).id());
      actions.push_back(std::move(action));
    }
    for (size_t p = 0; p < programs.size(); ++p)
      for (size_t q = 0; q < queues[p].size(); ++q) {
        const bundle::Entry *entry = head(p, q);
        unfinished = unfinished || queues[p][q].busy || entry;
        if (!entry || !ready(p, q, *entry))
          continue;
        Action action;
        if (stepOf(queues[p][q]) == steps && !inEvaluation(*entry)) {
          action.halves = {{p, q, entry}}; // keeps its place and its waits, does nothing
        } else if (std::vector<uint32_t> members = meeting(*entry, programs[p].device()); members.empty()) {
          action.halves = {{p, q, entry}};
        } else {
          if (members[0] != programs[p].device() && deviceOf.count(members[0]))
            continue; // offered by its first member
          action.halves = meet(p, q, *entry);
          if (action.halves.empty())
            continue;
        }
        action.rank = queues[p][q].rank;
        for (const Half &half : action.halves)
          action.victim = action.victim || (victimStarts && half.program == victimDevice && half.entry == &programs[victimDevice].entries(int(victimEntry)));
        actions.push_back(std::move(action));
      }
    if (actions.empty()) {
      if (!unfinished)
        return false;
      std::string what;
      for (size_t p = 0; p < programs.size(); ++p)
        for (size_t q = 0; q < queues[p].size(); ++q)
          if (const bundle::Entry *entry = head(p, q))
            what += " device " + std::to_string(programs[p].device()) + " queue " + std::to_string(q) + " at entry " + std::to_string(entry->id());
      throw Stop{Outcome::Deadlock, "stuck:" + what};
    }
    Action &chosen = choose(actions);
    chosen.ends ? end(chosen.index) : start(chosen.halves);
    return true;
  }

  Action &choose(std::vector<Action> &actions) {
    auto pick = [&](auto &&wanted) -> Action * {
      size_t count = 0;
      Action *chosen = nullptr;
      for (Action &action : actions)
        if (wanted(action) && random() % ++count == 0)
          chosen = &action;
      return chosen;
    };
    auto any = [](const Action &) { return true; };
    switch (how.policy) {
    case Interleaving::Priorities:
      if (random() % 64 == 0) { // someone else is fast now
        auto &list = queues[random() % queues.size()];
        if (!list.empty())
          list[random() % list.size()].rank = random();
      }
      return *std::max_element(actions.begin(), actions.end(), [](const Action &a, const Action &b) { return a.rank < b.rank; });
    case Interleaving::Starved:
      if (Action *other = pick([](const Action &a) { return !a.victim; }))
        return *other;
      return *pick(any);
    case Interleaving::Overlapped:
      if (Action *starting = pick([](const Action &a) { return !a.ends; }))
        return *starting;
      return *pick(any);
    case Interleaving::Eager:
      if (Action *ending = pick([](const Action &a) { return a.ends; }))
        return *ending;
      return *pick(any);
    default: return *pick(any);
    }
  }

  // -------------------------------------------------------------------------------------------------------------------------------
  // Starting: reads are taken, writes become poison until the end.

  void begin(std::unique_ptr<Active> work) {
    for (const auto &other : active)
      for (const Span &a : work->spans)
        for (const Span &b : other->spans)
          if (a.conflicts(b))
            throw Stop{Outcome::Race, "entries " + std::to_string(work->entry) + " and " + std::to_string(other->entry) + " touch bytes " + std::to_string(std::max(a.begin, b.begin)) +
                                          " of device " + std::to_string(programs[a.device].device()) + " at once"};
    for (const Span &s : work->spans)
      if (s.write)
        spoil(s);
    for (auto [p, q] : work->queues)
      queues[p][q].busy = true;
    active.push_back(std::move(work));
  }

  void end(size_t index) {
    std::unique_ptr<Active> work = std::move(active[index]);
    active.erase(active.begin() + index);
    for (const auto &[where, words] : work->writes)
      store(where, words);
    for (auto [p, q] : work->queues) {
      auto &queue = queues[p][q];
      queue.busy = false;
      if (work->lastCall) {
        ++queue.started;
        queue.call = 0;
      } else {
        ++queue.call;
      }
    }
  }

  void start(const std::vector<Half> &halves) {
    auto work = std::make_unique<Active>();
    work->entry = halves[0].entry->id();
    for (const Half &half : halves)
      work->queues.push_back({uint32_t(half.program), uint32_t(half.queue)});
    const bundle::Entry &entry = *halves[0].entry;
    int step = stepOf(queues[halves[0].program][halves[0].queue]);
    if (step == steps && !inEvaluation(entry)) {
      begin(std::move(work));
      return;
    }
    for (const Half &half : halves)
      if (half.entry->phase() != entry.phase())
        invalid("halves in different phases");
    if (entry.has_compute())
      startCall(halves[0], *work, step);
    else if (halves.size() == 1 && meeting(entry, programs[halves[0].program].device()).empty())
      startLocal(halves[0], *work, step);
    else if (entry.has_send() || entry.has_receive())
      startTransfer(halves, *work);
    else
      startCollective(halves, *work);
    begin(std::move(work));
  }

  void startCall(const Half &half, Active &work, int step) {
    const auto &compute = half.entry->compute();
    auto &queue = queues[half.program][half.queue];
    if (compute.calls_size() == 0)
      return;
    const auto &call = compute.calls(queue.call);
    work.lastCall = queue.call + 1 == compute.calls_size();
    if (call.body() >= uint32_t(bodies.bodies_size()) || call.rows() < 1 || call.rows() > (1 << 20))
      invalid("impossible call");
    const auto &body = bodies.bodies(int(call.body()));
    if (call.slots_size() != body.slots_size())
      invalid("slots do not fit the body");
    Role role = roleOf(summary, call.body());
    std::vector<Words> slots;
    std::vector<bool> overwrite;
    std::vector<Span> places;
    std::vector<Span> touched;
    for (int s = 0; s < body.slots_size(); ++s) {
      const auto &slot = body.slots(s);
      const auto &region = call.slots(s).region();
      int64_t bytes = slotBytes(slot, call.rows());
      if (bytes < 0)
        invalid("impossible slot");
      bool writes = slot.mode() != bundle::READ || slot.kind() == bundle::WORKSPACE;
      Span where = span(half.program, region, 0, bytes, writes);
      places.push_back(where);
      // Scalars and sums share a block: calls touch their part of it.
      auto touch = [&](int64_t from, int64_t to, bool write) {
        Span part = where;
        part.begin = std::min(where.end, where.begin + from);
        part.end = std::min(where.end, where.begin + to);
        part.write = write;
        if (part.begin < part.end)
          touched.push_back(part);
      };
      if (slot.kind() == bundle::SCALARS) {
        touch(0, 64, false);
        if (role == Role::Update || role == Role::Decide)
          touch(64, 128, writes);
        touch(128, 256, false);
      } else if (slot.kind() == bundle::SUMS_SLOT && role == Role::Norm) {
        touch(0, 16, true);
      } else if (slot.kind() == bundle::SUMS_SLOT && role == Role::SumLoss) {
        touch(16, 128, true);
      } else {
        touch(0, bytes, writes);
      }
      Words words = fetch(where);
      if (slot.mode() == bundle::WRITE || slot.kind() == bundle::WORKSPACE)
        for (uint64_t &word : words)
          word = poison();
      slots.push_back(std::move(words));
      overwrite.push_back(call.slots(s).overwrite() || slot.mode() == bundle::WRITE);
    }
    for (size_t a = 0; a < touched.size(); ++a)
      for (size_t b = a + 1; b < touched.size(); ++b)
        if (touched[a].conflicts(touched[b]))
          throw Stop{Outcome::Race, "slots of a call of entry " + std::to_string(work.entry) + " overlap"};
    execute(summary, bodies, call.body(), call.rows(), call.sample_base(), call.instance_base(), slots, overwrite);
    for (const Span &part : touched)
      if (part.write)
        for (size_t s = 0; s < places.size(); ++s)
          if (places[s].write && places[s].arena == part.arena && places[s].begin <= part.begin && part.end <= places[s].end) {
            Words words(slots[s].begin() + (part.begin - places[s].begin) / 4, slots[s].begin() + (part.end - places[s].begin) / 4);
            if (body.slots(int(s)).kind() == bundle::WORKSPACE)
              for (uint64_t &word : words)
                word = poison();
            work.writes.push_back({part, std::move(words)});
            break;
          }
    work.spans = std::move(touched);
    (void)step;
  }

  void startLocal(const Half &half, Active &work, int step) {
    const bundle::Entry &entry = *half.entry;
    auto write = [&](const bundle::Region &region, Words words) {
      Span where = span(half.program, region, 0, int64_t(region.bytes()), true);
      words.resize(size_t(where.end - where.begin) / 4);
      work.spans.push_back(where);
      work.writes.push_back({where, std::move(words)});
    };
    auto read = [&](const bundle::Region &region) {
      Span where = span(half.program, region, 0, int64_t(region.bytes()), false);
      work.spans.push_back(where);
      return fetch(where);
    };
    if (entry.has_copy()) {
      Words words = read(entry.copy().from());
      write(entry.copy().to(), std::move(words));
      if (work.spans[0].conflicts(work.spans[1]) || entry.copy().from().bytes() != entry.copy().to().bytes())
        invalid("copy onto itself, or of unequal sizes");
    } else if (entry.has_load_input()) {
      const auto &load = entry.load_input();
      if (load.input() >= uint32_t(summary.inputs_size()) || load.rows() < 0 || load.rows() > (1 << 20))
        invalid("impossible load");
      size_t perRow = size_t(summary.inputs(int(load.input())).bytes_per_row()) / 4;
      if (load.region().bytes() != uint64_t(load.rows()) * perRow * 4)
        invalid("load of the wrong size");
      Words words;
      for (int64_t r = 0; r < load.rows(); ++r)
        for (size_t w = 0; w < perRow; ++w)
          words.push_back(inputWord(load.input(), load.sample_base() + r, w, step));
      write(load.region(), std::move(words));
    } else if (entry.has_load_scalars()) {
      if (entry.load_scalars().region().bytes() != kBlockWords * 4)
        invalid("scalars of the wrong size");
      Words words(kBlockWords, 0);
      for (size_t w = 0; w < kScalarWords; ++w)
        words[w] = scalarWord(w, step);
      for (size_t w = kScalarWords + kSumWords; w < kBlockWords; ++w)
        words[w] = poison();
      write(entry.load_scalars().region(), std::move(words));
    } else if (entry.has_report()) {
      if (entry.report().region().bytes() != kBlockWords * 4)
        invalid("report of the wrong size");
      Words block = read(entry.report().region());
      Words report;
      if (step < steps)
        report.assign(block.begin() + kDecidedBegin, block.begin() + kDecidedEnd);
      report.insert(report.end(), block.begin() + kScalarWords + kNormWords, block.begin() + kScalarWords + kNormWords + 2 * summary.loss_size());
      reports[size_t(step)].insert(reports[size_t(step)].end(), report.begin(), report.end());
    } else {
      invalid("an entry that is nothing");
    }
  }

  void startTransfer(const std::vector<Half> &halves, Active &work) {
    const Half *send = nullptr, *receive = nullptr;
    for (const Half &half : halves)
      (half.entry->has_send() ? send : receive) = &half;
    if (halves.size() != 2 || !send || !receive || !receive->entry->has_receive())
      invalid("a transfer without both halves");
    const bundle::Send &from = send->entry->send();
    const bundle::Receive &to = receive->entry->receive();
    if (from.peer() != programs[receive->program].device() || to.peer() != programs[send->program].device() || from.region().bytes() != to.region().bytes())
      invalid("halves of a transfer that do not fit");
    Span source = span(send->program, from.region(), 0, int64_t(from.region().bytes()), false);
    Span target = span(receive->program, to.region(), 0, int64_t(to.region().bytes()), true);
    work.spans = {source, target};
    work.writes.push_back({target, fetch(source)});
  }

  void startCollective(const std::vector<Half> &halves, Active &work) {
    const bundle::Entry &first = *halves[0].entry;
    auto extents = [&](const bundle::Extents &e) {
      if (e.members_size() != e.begin_size() || e.members_size() != e.end_size())
        invalid("ragged extents");
    };
    auto common = [](bundle::Entry entry) { // what all halves must agree on
      bundle::Entry out;
      if (entry.has_all_gather()) {
        *out.mutable_all_gather() = entry.all_gather();
        out.mutable_all_gather()->clear_full();
        out.mutable_all_gather()->clear_shard();
        out.mutable_all_gather()->clear_value();
      } else if (entry.has_reduce_scatter()) {
        *out.mutable_reduce_scatter() = entry.reduce_scatter();
        out.mutable_reduce_scatter()->clear_full();
        out.mutable_reduce_scatter()->clear_shard();
        out.mutable_reduce_scatter()->clear_value();
      } else if (entry.has_all_reduce()) {
        *out.mutable_all_reduce() = entry.all_reduce();
        out.mutable_all_reduce()->mutable_region()->clear_offset();
        out.mutable_all_reduce()->clear_from();
        out.mutable_all_reduce()->clear_to();
      } else if (entry.has_broadcast()) {
        *out.mutable_broadcast() = entry.broadcast();
        out.mutable_broadcast()->clear_region();
        out.mutable_broadcast()->clear_value();
      }
      return out.SerializeAsString();
    };
    for (const Half &half : halves)
      if (half.entry->what_case() != first.what_case() || common(*half.entry) != common(first))
        invalid("members of a collective disagree");

    auto add = [&](const Half &half, const bundle::Region &region, bool write) {
      Span where = span(half.program, region, 0, int64_t(region.bytes()), write);
      work.spans.push_back(where);
      return where;
    };
    auto indexOf = [](const auto &list, uint32_t device) {
      for (int i = 0; i < list.size(); ++i)
        if (list.Get(i) == device)
          return i;
      return -1;
    };
    if (first.has_all_gather()) {
      const auto &gather = first.all_gather();
      extents(gather.shards());
      if (gather.group() >= uint32_t(summary.groups_size()))
        invalid("no such group");
      size_t size = size_t(summary.groups(int(gather.group())).elements());
      Words whole(size);
      for (uint64_t &word : whole)
        word = poison();
      for (const Half &half : halves) {
        const auto &mine = half.entry->all_gather();
        int i = indexOf(mine.shards().members(), programs[half.program].device());
        if (i < 0 || mine.shards().begin(i) >= mine.shards().end(i))
          continue;
        int64_t begin = mine.shards().begin(i), end = mine.shards().end(i);
        if (begin < 0 || end > int64_t(size) || mine.shard().bytes() != uint64_t(end - begin) * 4)
          invalid("shard of the wrong size");
        Words words = fetch(add(half, mine.shard(), false));
        std::copy(words.begin(), words.end(), whole.begin() + begin);
      }
      for (const Half &half : halves) {
        const auto &mine = half.entry->all_gather();
        if (indexOf(mine.readers(), programs[half.program].device()) < 0)
          continue;
        if (mine.full().bytes() != size * 4)
          invalid("group of the wrong size");
        Span where = span(half.program, mine.full(), 0, int64_t(size) * 4, true);
        // In place: the own shard stays where it is.
        int i = indexOf(mine.shards().members(), programs[half.program].device());
        if (i >= 0 && mine.shards().begin(i) < mine.shards().end(i)) {
          if (mine.shard().arena() != mine.full().arena() || mine.shard().offset() != mine.full().offset() + uint64_t(mine.shards().begin(i)) * 4)
            invalid("an owner's shard is not in place");
          Span before = where, after = where;
          before.end = where.begin + mine.shards().begin(i) * 4;
          after.begin = where.begin + mine.shards().end(i) * 4;
          for (const Span &part : {before, after})
            if (part.begin < part.end) {
              work.spans.push_back(part);
              work.writes.push_back({part, Words(whole.begin() + (part.begin - where.begin) / 4, whole.begin() + (part.end - where.begin) / 4)});
            }
        } else {
          work.spans.push_back(where);
          work.writes.push_back({where, whole});
        }
      }
    } else if (first.has_reduce_scatter()) {
      const auto &reduce = first.reduce_scatter();
      extents(reduce.shards());
      if (reduce.group() >= uint32_t(summary.groups_size()))
        invalid("no such group");
      size_t size = size_t(summary.groups(int(reduce.group())).elements());
      Words total(size, 0);
      for (const Half &half : halves) {
        const auto &mine = half.entry->reduce_scatter();
        if (indexOf(mine.contributors(), programs[half.program].device()) < 0)
          continue;
        if (mine.full().bytes() != size * 4)
          invalid("group of the wrong size");
        Words words = fetch(add(half, mine.full(), false));
        for (size_t w = 0; w < size; ++w)
          total[w] += words[w];
      }
      for (const Half &half : halves) {
        const auto &mine = half.entry->reduce_scatter();
        int i = indexOf(mine.shards().members(), programs[half.program].device());
        if (i < 0 || mine.shards().begin(i) >= mine.shards().end(i))
          continue;
        int64_t begin = mine.shards().begin(i), end = mine.shards().end(i);
        if (begin < 0 || end > int64_t(size) || mine.shard().bytes() != uint64_t(end - begin) * 4)
          invalid("shard of the wrong size");
        bool overlaps = mine.full().bytes() && mine.full().arena() == mine.shard().arena() && mine.shard().offset() < mine.full().offset() + mine.full().bytes() &&
                        mine.full().offset() < mine.shard().offset() + mine.shard().bytes();
        if (overlaps && mine.shard().offset() != mine.full().offset() + uint64_t(begin) * 4)
          invalid("a shard inside the accumulator, out of place");
        work.writes.push_back({add(half, mine.shard(), true), Words(total.begin() + begin, total.begin() + end)});
      }
    } else if (first.has_all_reduce()) {
      Words total(first.all_reduce().region().bytes() / 4, 0);
      std::vector<Span> places;
      for (const Half &half : halves) {
        if (half.entry->all_reduce().region().bytes() != first.all_reduce().region().bytes())
          invalid("sums of unequal sizes");
        places.push_back(add(half, half.entry->all_reduce().region(), true));
        Words words = fetch(places.back());
        for (size_t w = 0; w < total.size(); ++w)
          total[w] += words[w];
      }
      for (const Span &where : places)
        work.writes.push_back({where, total});
    } else if (first.has_broadcast()) {
      Words words;
      for (const Half &half : halves)
        if (programs[half.program].device() == first.broadcast().root())
          words = fetch(add(half, half.entry->broadcast().region(), false));
      for (const Half &half : halves)
        if (programs[half.program].device() != first.broadcast().root()) {
          Span where = add(half, half.entry->broadcast().region(), true);
          if (size_t(where.end - where.begin) != words.size() * 4)
            invalid("broadcast of unequal sizes");
          work.writes.push_back({where, words});
        }
    } else {
      invalid("an unknown collective");
    }
  }

  void finish(Result &result) {
    for (size_t p = 0; p < programs.size(); ++p)
      for (const auto &state : programs[p].state()) {
        Words words = fetch(span(p, state.region(), 0, int64_t(state.region().bytes()), false));
        const auto &value = state.value();
        if (value.kind() == bundle::Value::OPTIMIZER_STEP) {
          result.optimizerSteps.push_back(words[0]);
          continue;
        }
        auto &elements = result.state[{int(value.kind()), value.id(), value.cut()}];
        for (int64_t e = value.begin(); e < value.end() && size_t(e - value.begin()) < words.size(); ++e)
          if (!padding(value.id(), e)) {
            auto [it, fresh] = elements.try_emplace(e, words[size_t(e - value.begin())]);
            if (!fresh && it->second != words[size_t(e - value.begin())]) // held twice, and not the same
              it->second = 0;
          }
      }
    result.reports = reports;
  }
};

} // namespace

Outcome interpret::run(const bundle::ModelSummary &summary, const bundle::BodyLibrary &bodies, const std::vector<bundle::Program> &programs, int steps, const Interleaving &interleaving) {
  return Machine(summary, bodies, programs, steps, interleaving).run();
}

std::string interpret::difference(const Result &expected, const Result &found) {
  for (size_t s = 0; s < expected.reports.size(); ++s)
    if (s >= found.reports.size() || found.reports[s] != expected.reports[s])
      return "step " + std::to_string(s + 1) + " reports something else";
  for (const auto &[key, elements] : expected.state) {
    auto it = found.state.find(key);
    for (const auto &[element, word] : elements)
      if (it == found.state.end() || !it->second.count(element) || it->second.at(element) != word)
        return "element " + std::to_string(element) + " of group " + std::to_string(std::get<1>(key)) + (std::get<0>(key) == bundle::Value::MOMENTS ? "'s moments" : "") + " differs";
  }
  for (uint64_t count : found.optimizerSteps)
    if (count != expected.optimizerSteps[0])
      return "the optimizer step differs";
  return "";
}

Harm interpret::findHarm(const bundle::ModelSummary &summary, const bundle::BodyLibrary &bodies, const std::vector<bundle::Program> &programs, const Result &expected, int steps,
                         int interleavings, uint32_t seed) {
  Harm harm;
  for (; harm.runs < interleavings && !harm.harmful; ++harm.runs) {
    Interleaving how{seed * 1000003u + uint32_t(harm.runs), Interleaving::Policy(harm.runs % Interleaving::Policies)};
    Outcome outcome = run(summary, bodies, programs, steps, how);
    static const char *const kinds[] = {"", "invalid: ", "deadlock: ", "race: "};
    if (outcome.kind != Outcome::Finished)
      harm.what = kinds[outcome.kind] + outcome.what;
    else
      harm.what = difference(expected, outcome.result);
    harm.harmful = !harm.what.empty();
  }
  return harm;
}
