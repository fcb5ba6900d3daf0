#include "Machine.h"

#include "zorse/Summary/StateLayout.h"
#include "zorse/Summary/Summary.h"

#include <algorithm>
#include <set>

using namespace zorse;
using namespace zorse::interpret;

Outcome Machine::run() {
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

void Machine::prepare() {
  for (size_t p = 0; p < programs.size(); ++p) {
    const auto &program = programs[p];
    if (!deviceOf.emplace(program.device(), p).second)
      invalid("two programs for one device");
    std::vector<QueueState> list(program.queues_size());
    for (int e = 0; e < program.instructions_size(); ++e) {
      if (program.instructions(e).queue() >= list.size())
        invalid("queue out of range");
      if (e && program.instructions(e).id() <= program.instructions(e - 1).id())
        invalid("ids do not ascend");
      list[program.instructions(e).queue()].instructions.push_back(e);
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
        for (int64_t e = value.begin();
             e < value.end() && words.size() < size_t(where.end - where.begin) / 4; ++e)
          words.push_back(
              padding(value, e) ? 0 : initialWord(value.kind(), value.id(), value.cut(), e));
        words.resize(size_t(where.end - where.begin) / 4);
      }
      store(where, words);
    }
  }
  reports.resize(steps.size());
  std::vector<std::pair<uint32_t, uint32_t>> all;
  for (size_t p = 0; p < programs.size(); ++p)
    for (int e = 0; e < programs[p].instructions_size(); ++e)
      all.push_back({uint32_t(p), uint32_t(e)});
  if (!all.empty())
    std::tie(victimDevice, victimInstruction) = all[random() % all.size()];
  victimStarts = random() % 2;
}

bool Machine::padding(const bundle::Value &value, int64_t element) const {
  for (uint32_t p : summary.groups(int(value.id())).parameters()) {
    const auto &parameter = summary.parameters(int(p));
    int64_t begin = parameter.offset(), end = begin + elementsOf(parameter);
    if (value.kind() == bundle::Value::MOMENTS) {
      const StateLayout layout(summary, value.id(), value.cut());
      begin = layout.begin(begin);
      end = layout.end(end);
    }
    if (element >= begin && element < end)
      return false;
  }
  return true;
}

Span Machine::span(size_t p, const bundle::Region &region, int64_t from, int64_t to, bool write) {
  if (region.arena() >= arenas[p].size())
    invalid("arena out of range");
  uint64_t size = programs[p].arenas(int(region.arena())).bytes();
  if (region.offset() > size || uint64_t(to) > size - region.offset() || to < from || from < 0)
    invalid("region out of bounds");
  if (region.offset() % 4 || from % 4 || to % 4)
    invalid("region not aligned");
  return {uint32_t(p), region.arena(), int64_t(region.offset()) + from,
          int64_t(region.offset()) + to, write};
}

bool Machine::ready(size_t p, size_t q, const bundle::Instruction &instruction) {
  const size_t step = stepOf(queues[p][q]);
  for (const auto &wait : instruction.waits()) {
    if (wait.queue() >= queues[p].size() ||
        wait.position() >= queues[p][wait.queue()].instructions.size())
      invalid("wait out of range");
    if (wait.previous_step() && step == 0)
      continue;
    const auto &target = queues[p][wait.queue()];
    if (target.started <=
        (step - (wait.previous_step() ? 1 : 0)) * target.instructions.size() + wait.position())
      return false;
  }
  return true;
}

std::vector<uint32_t> Machine::meeting(const bundle::Instruction &instruction, uint32_t self) {
  std::set<uint32_t> members;
  auto add = [&](const auto &list) { members.insert(list.begin(), list.end()); };
  if (instruction.has_send())
    members = {self, instruction.send().peer()};
  else if (instruction.has_receive())
    members = {self, instruction.receive().peer()};
  else if (instruction.has_all_gather()) {
    add(instruction.all_gather().readers());
    add(instruction.all_gather().shards().members());
  } else if (instruction.has_reduce_scatter()) {
    add(instruction.reduce_scatter().contributors());
    add(instruction.reduce_scatter().shards().members());
  } else if (instruction.has_all_reduce()) {
    add(instruction.all_reduce().members());
  }
  return {members.begin(), members.end()};
}

std::vector<Machine::Half> Machine::meet(size_t p, size_t q,
                                         const bundle::Instruction &instruction) {
  std::vector<Half> halves;
  for (uint32_t device : meeting(instruction, programs[p].device())) {
    auto it = deviceOf.find(device);
    if (it == deviceOf.end())
      return {};
    bool found = false;
    for (size_t other = 0; other < queues[it->second].size() && !found; ++other)
      if (const bundle::Instruction *half = head(it->second, other);
          half && half->id() == instruction.id() &&
          stepOf(queues[it->second][other]) == stepOf(queues[p][q]) &&
          ready(it->second, other, *half)) {
        halves.push_back({it->second, other, half});
        found = true;
      }
    if (!found)
      return {};
  }
  return halves;
}

bool Machine::act() {
  std::vector<Action> actions;
  bool unfinished = !active.empty();
  for (size_t i = 0; i < active.size(); ++i) {
    Action action;
    action.ends = true;
    action.index = i;
    auto [p, q] = active[i]->queues[0];
    action.rank = queues[p][q].rank;
    for (auto [device, queue] : active[i]->queues)
      action.victim =
          action.victim ||
          (!victimStarts && device == victimDevice &&
           active[i]->instruction == programs[device].instructions(int(victimInstruction)).id());
    actions.push_back(std::move(action));
  }
  for (size_t p = 0; p < programs.size(); ++p)
    for (size_t q = 0; q < queues[p].size(); ++q) {
      const bundle::Instruction *instruction = head(p, q);
      unfinished = unfinished || queues[p][q].busy || instruction;
      if (!instruction || !ready(p, q, *instruction))
        continue;
      Action action;
      if (evaluates(stepOf(queues[p][q])) && !inEvaluation(*instruction)) {
        action.halves = {{p, q, instruction}}; // has an effect only on order and waits
      } else if (std::vector<uint32_t> members = meeting(*instruction, programs[p].device());
                 members.empty()) {
        action.halves = {{p, q, instruction}};
      } else {
        if (members[0] != programs[p].device() && deviceOf.count(members[0]))
          continue; // the first member adds the action
        action.halves = meet(p, q, *instruction);
        if (action.halves.empty())
          continue;
      }
      action.rank = queues[p][q].rank;
      for (const Half &half : action.halves)
        action.victim = action.victim || (victimStarts && half.program == victimDevice &&
                                          half.instruction == &programs[victimDevice].instructions(
                                                                  int(victimInstruction)));
      actions.push_back(std::move(action));
    }
  if (actions.empty()) {
    if (!unfinished)
      return false;
    std::string what;
    for (size_t p = 0; p < programs.size(); ++p)
      for (size_t q = 0; q < queues[p].size(); ++q)
        if (const bundle::Instruction *instruction = head(p, q))
          what += " device " + std::to_string(programs[p].device()) + " queue " +
                  std::to_string(q) + " at instruction " + std::to_string(instruction->id());
    throw Stop{Outcome::Deadlock, "stuck:" + what};
  }
  Action &chosen = choose(actions);
  chosen.ends ? end(chosen.index) : start(chosen.halves);
  return true;
}

Machine::Action &Machine::choose(std::vector<Action> &actions) {
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
    if (random() % 64 == 0) { // change which queue is fast
      auto &list = queues[random() % queues.size()];
      if (!list.empty())
        list[random() % list.size()].rank = random();
    }
    return *std::max_element(actions.begin(), actions.end(),
                             [](const Action &a, const Action &b) { return a.rank < b.rank; });
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
  default:
    return *pick(any);
  }
}

void Machine::begin(std::unique_ptr<Active> work) {
  for (const auto &other : active)
    for (const Span &a : work->spans)
      for (const Span &b : other->spans)
        if (a.conflicts(b))
          throw Stop{Outcome::Race, "instructions " + std::to_string(work->instruction) + " and " +
                                        std::to_string(other->instruction) + " touch bytes " +
                                        std::to_string(std::max(a.begin, b.begin)) + " of device " +
                                        std::to_string(programs[a.device].device()) + " at once"};
  for (const Span &s : work->spans)
    if (s.write)
      poison(s);
  for (auto [p, q] : work->queues)
    queues[p][q].busy = true;
  active.push_back(std::move(work));
}

void Machine::end(size_t index) {
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

void Machine::start(const std::vector<Half> &halves) {
  auto work = std::make_unique<Active>();
  work->instruction = halves[0].instruction->id();
  for (const Half &half : halves)
    work->queues.push_back({uint32_t(half.program), uint32_t(half.queue)});
  const bundle::Instruction &instruction = *halves[0].instruction;
  const size_t step = stepOf(queues[halves[0].program][halves[0].queue]);
  if (evaluates(step) && !inEvaluation(instruction)) {
    begin(std::move(work));
    return;
  }
  for (const Half &half : halves)
    if (half.instruction->phase() != instruction.phase())
      invalid("halves in different phases");
  if (instruction.has_compute())
    startCall(halves[0], *work);
  else if (halves.size() == 1 && meeting(instruction, programs[halves[0].program].device()).empty())
    startLocal(halves[0], *work, step);
  else if (instruction.has_send() || instruction.has_receive())
    startTransfer(halves, *work);
  else
    startCollective(halves, *work);
  begin(std::move(work));
}
