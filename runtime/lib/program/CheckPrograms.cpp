// Nothing a program says may lead outside: indices, ranges, regions, halves of transfers. What the
// bytes mean is the compiler's verifier's business.
#include "ArgumentBindings.h"
#include "Collectives.h"
#include "zorse/Summary/Summary.h"
#include "zorse/runtime/Bundle.h"
#include "zorse/runtime/Expression.h"
#include "zorse/runtime/abi/StepScalars.h"

#include <algorithm>
#include <map>
#include <set>

using namespace zorse;
using namespace zorse::runtime;
using bundle::Instruction;

namespace {

/// Whether a part of a parameter lies inside it and has the given shape.
bool isSound(const bundle::ParameterInfo::Shard &shard,
             const google::protobuf::RepeatedField<int64_t> &shape) {
  constexpr int64_t kMax = int64_t(1) << 48;
  if (shard.dim() >= uint32_t(shard.shape_size()) || shape.size() != shard.shape_size() ||
      shard.begins().empty() || shard.begins_size() != shard.widths_size() || shard.first() < 0 ||
      shard.count() < 0 || shard.first() > kMax || shard.count() > kMax)
    return false;
  const int dim = int(shard.dim());
  int64_t points = 0;
  for (int s = 0; s < shard.begins_size(); ++s) {
    const int64_t begin = shard.begins(s), width = shard.widths(s);
    int64_t end;
    if (begin < 0 || width < 0 ||
        __builtin_mul_overflow(shard.first() + shard.count(), width, &end) ||
        __builtin_add_overflow(begin, end, &end) || end > shard.shape(dim))
      return false;
    points += width * shard.count();
  }
  std::vector<int64_t> expected{points}, found(shape.begin(), shape.end());
  for (int d = 0; d < shard.shape_size(); ++d)
    if (d != dim)
      expected.push_back(shard.shape(d));
  return expected == found;
}

class Checker {
public:
  explicit Checker(const Bundle &bundle) : bundle_(bundle) {}

  Status check() {
    if (bundle_.programs.size() != bundle_.devices.size())
      return userError(bundle_.directory + ": has " + std::to_string(bundle_.programs.size()) +
                       " programs for " + std::to_string(bundle_.devices.size()) + " devices");
    summary();
    for (device_ = 0; device_ < bundle_.programs.size() && problem_.empty(); ++device_)
      program(bundle_.programs[device_]);
    if (problem_.empty())
      transfers();
    if (!problem_.empty())
      return userError(bundle_.directory + ": " + problem_);
    return Status::success();
  }

private:
  void fail(const std::string &what) {
    if (problem_.empty())
      problem_ = where_ + what;
  }
  template <typename A, typename B> bool below(const char *what, A index, B size) {
    if (static_cast<uint64_t>(index) < static_cast<uint64_t>(size))
      return true;
    fail(std::string(what) + " " + std::to_string(index) + " of " + std::to_string(size) +
         " does not exist");
    return false;
  }

  void summary() {
    where_ = "summary.pb: ";
    const bundle::ModelSummary &s = bundle_.summary;
    for (int i = 0; i < s.sums_size(); ++i) {
      const bundle::SumFunction &sum = s.sums(i);
      const bool follows = i > 0 && s.sums(i - 1).type() == sum.type() &&
                           s.sums(i - 1).term_type() == sum.term_type() &&
                           s.sums(i - 1).continues() == sum.continues() &&
                           sum.num_contributions() == s.sums(i - 1).num_contributions() + 1,
                 rounds = sum.type() == bundle::BF16 && sum.term_type() == bundle::F32;
      if (!below("function", sum.function(), bundle_.functions.functions_size()))
        return;
      if ((!follows && sum.num_contributions() != (rounds ? 1 : 2)) ||
          bundle_.functions.functions(int(sum.function())).arguments_size() !=
              int(sum.num_contributions()) + 1)
        return fail("a function adds " + std::to_string(sum.num_contributions()) +
                    " terms, but is out of order or has the wrong arguments");
    }
    constexpr int64_t kPadding = 512;
    std::vector<int64_t> room(s.groups_size(),
                              kPadding); // elements of each group's parameters including padding
    for (const bundle::ParameterInfo &p : s.parameters()) {
      int64_t elements = 1;
      for (int64_t dimension : p.shape())
        if (dimension < 0 || __builtin_mul_overflow(elements, dimension, &elements))
          return fail("parameter '" + p.name() + "' has no size");
      if (!below("state group", p.group(), s.groups_size()))
        return;
      if (p.offset() < 0 || p.offset() > s.groups(int(p.group())).elements() ||
          elements > s.groups(int(p.group())).elements() - p.offset())
        return fail("parameter '" + p.name() + "' lies outside its group");
      if (!elementBytes(p.type()))
        return fail("parameter '" + p.name() + "' has an unknown element type");
      if (p.has_shard() && !isSound(p.shard(), p.shape()))
        return fail("parameter '" + p.name() + "' is an impossible part of '" + p.shard().of() +
                    "'");
      if (__builtin_add_overflow(room[p.group()], kPadding, &room[p.group()]) ||
          __builtin_add_overflow(room[p.group()], elements, &room[p.group()]))
        return fail("state group '" + s.groups(int(p.group())).name() + "' is too large");
    }
    for (const bundle::FlatGroupInfo &group : s.groups()) {
      if (group.elements() < 0 || !elementBytes(group.type()))
        return fail("state group '" + group.name() + "' has no size");
      for (uint32_t parameter : group.parameters())
        if (!below("parameter", parameter, s.parameters_size()))
          return;
    }
    for (int i = 0; i < s.groups_size(); ++i)
      if (s.groups(i).elements() > room[i])
        return fail("state group '" + s.groups(i).name() + "' is larger than its parameters");
    for (const bundle::GraphInput &input : s.inputs()) {
      int64_t bytes = int64_t(elementBytes(input.type())), all;
      for (int64_t dimension : input.shape())
        if (dimension < 0 || __builtin_mul_overflow(bytes, dimension, &bytes))
          return fail("input '" + input.name() + "' has no size");
      if (bytes <= 0 || __builtin_mul_overflow(bytes, bundle_.batch, &all))
        return fail("input '" + input.name() + "' has no size");
      if (bytes != input.bytes_per_row())
        return fail("input '" + input.name() + "' has " + std::to_string(input.bytes_per_row()) +
                    " bytes a row, its shape needs " + std::to_string(bytes));
    }
    if (s.loss_size() > zorse::abi::kMaxLossTerms)
      return fail("has " + std::to_string(s.loss_size()) + " loss terms, at most " +
                  std::to_string(zorse::abi::kMaxLossTerms) + " are supported");
    loss(s);
  }

  /// Checks counts, and expressions of them.
  void loss(const bundle::ModelSummary &s) {
    if (s.known_size() > zorse::abi::kMaxKnown)
      return fail("has " + std::to_string(s.known_size()) + " known numbers, at most " +
                  std::to_string(zorse::abi::kMaxKnown) + " are supported");
    if (s.counts_size() > int(Expression::kMaxCounts))
      return fail("has " + std::to_string(s.counts_size()) + " counts, at most " +
                  std::to_string(Expression::kMaxCounts) + " are supported");
    if (s.counts_size() > 0 &&
        below("function", s.count_function(), bundle_.functions.functions_size()))
      for (uint32_t input : s.count_inputs())
        below("input", input, s.inputs_size());
    for (const bundle::Count &count : s.counts())
      if (*reduceName(count.reduce()) == '\0')
        return fail("has a count with an unknown reduction (" +
                    std::to_string(int(count.reduce())) + ")");
    for (const bundle::LossTerm &term : s.loss())
      expression("the factor of loss term '" + term.name() + "'", term.factor(), s.counts_size());
    for (const std::string &known : s.known())
      expression("a known number", known, s.counts_size());
  }

  void expression(const std::string &what, const std::string &text, int counts) {
    Result<Expression> parsed = Expression::parse(text);
    if (parsed.failed())
      return fail(
          what + " is '" + text +
          "', which is no expression of the samples of a step and its counts: " + parsed.message());
    for (uint32_t count : parsed->counts())
      if (count >= uint32_t(counts))
        return fail((what + " is '")
                        .append(text)
                        .append("' and reads n" + std::to_string(count) + ", and there are " +
                                std::to_string(counts) + " counts"));
  }

  void program(const bundle::Program &p) {
    where_ = "programs/" + std::to_string(device_) + ".pb: ";
    if (p.device() != device_ || p.device_name() != bundle_.devices[device_].name)
      return fail("is the program of device " + std::to_string(p.device()) + " '" +
                  p.device_name() + "', expected " + std::to_string(device_) + " '" +
                  bundle_.devices[device_].name + "'");
    uint64_t arenas = 0, onDevice = 0;
    for (const bundle::Arena &arena : p.arenas()) {
      if (arena.bytes() > (uint64_t(1) << 50) || (arenas += arena.bytes()) > (uint64_t(1) << 50))
        return fail("an arena of " + std::to_string(arena.bytes()) + " bytes");
      if (arena.kind() == bundle::DEVICE)
        onDevice += arena.bytes();
    }
    if (uint64_t limit = bundle_.devices[device_].memory; limit && onDevice > limit)
      return fail("needs " + std::to_string(onDevice) + " bytes of memory, the device has " +
                  std::to_string(limit));

    std::vector<std::vector<int>> queues(p.queues_size()); // by position: index in the list
    int64_t before = -1;
    for (int i = 0; i < p.instructions_size(); ++i) {
      const Instruction &instruction = p.instructions(i);
      where_ = "programs/" + std::to_string(device_) + ".pb, instruction " +
               std::to_string(instruction.id()) + ": ";
      if (int64_t(instruction.id()) <= before)
        return fail("instructions are expected in ascending order");
      before = instruction.id();
      if (!below("queue", instruction.queue(), p.queues_size()))
        return;
      queues[instruction.queue()].push_back(i);
      if (instruction.phase() < bundle::LOAD || instruction.phase() > bundle::READ_METRICS)
        return fail("has an unknown phase");
      this->instruction(p, instruction);
    }
    std::vector<int64_t> seen(p.queues_size(),
                              0); // number of instructions of each queue before the current one
    for (const Instruction &instruction : p.instructions()) {
      where_ = "programs/" + std::to_string(device_) + ".pb, instruction " +
               std::to_string(instruction.id()) + ": ";
      for (const bundle::Wait &wait : instruction.waits()) {
        if (!below("queue", wait.queue(), p.queues_size()) ||
            !below("position", wait.position(), queues[wait.queue()].size()))
          return;
        if (!wait.previous_step() && wait.position() >= seen[wait.queue()])
          return fail("waits for a later instruction: this program cannot run");
      }
      ++seen[instruction.queue()];
    }
    where_ = "programs/" + std::to_string(device_) + ".pb, state: ";
    for (const bundle::PersistentState &state : p.state()) {
      region(p, state.region());
      const bundle::Value &value = state.value();
      if (!elementBytes(state.type()))
        return fail("unknown element type");
      if (value.kind() == bundle::Value::OPTIMIZER_STEP) {
        if (state.region().bytes() < optimizerStepBytes(bundle_.summary))
          return fail("the optimizer step needs " +
                      std::to_string(optimizerStepBytes(bundle_.summary)) + " bytes");
        continue;
      }
      if (value.kind() != bundle::Value::PARAMETERS && value.kind() != bundle::Value::MOMENTS)
        return fail("expects parameters, moments or the optimizer step");
      if (!below("state group", value.id(), bundle_.summary.groups_size()) ||
          !extent(value.begin(), value.end(), value.id()))
        return;
      if (uint64_t(value.end() - value.begin()) * elementBytes(state.type()) >
          state.region().bytes())
        return fail("does not fit its region");
    }
  }

  bool extent(int64_t begin, int64_t end, uint32_t group) {
    int64_t elements = bundle_.summary.groups(group).elements();
    if (begin >= 0 && begin <= end && end <= elements)
      return true;
    fail("elements [" + std::to_string(begin) + ", " + std::to_string(end) + ") of a group of " +
         std::to_string(elements));
    return false;
  }

  /// \param alignment  required alignment of its first byte
  void region(const bundle::Program &p, const bundle::Region &r, uint64_t min = 0,
              uint64_t alignment = 1) {
    if (r.bytes() == 0 && min == 0)
      return; // absent
    if (r.offset() % alignment)
      return fail("a region that starts at byte " + std::to_string(r.offset()) +
                  " of its arena, expected a multiple of " + std::to_string(alignment));
    if (!below("arena", r.arena(), p.arenas_size()))
      return;
    uint64_t size = p.arenas(r.arena()).bytes();
    if (r.offset() > size || r.bytes() > size - r.offset())
      return fail("bytes [" + std::to_string(r.offset()) + ", +" + std::to_string(r.bytes()) +
                  ") lie outside an arena of " + std::to_string(size));
    if (r.bytes() < min)
      fail("a region of " + std::to_string(r.bytes()) + " bytes, at least " + std::to_string(min) +
           " are needed");
  }

  void call(const bundle::Program &p, const bundle::Call &call) {
    if (!below("function", call.function(), bundle_.functions.functions_size()))
      return;
    const bundle::CompiledFunction &function = bundle_.functions.functions(call.function());
    const bundle::ArgumentBindings bindings(p, call);
    if (bindings.size() != function.arguments_size())
      return fail("binds " + std::to_string(bindings.size()) + " arguments of function '" +
                  function.name() + "', which has " + std::to_string(function.arguments_size()));
    if (!bindings.complete())
      return fail("binds an argument of function '" + function.name() +
                  "' to a region or a value that the program does not have");
    if (call.rows() < 1 || call.rows() > (int64_t(1) << 48) || call.sample_base() < 0)
      return fail("calls function '" + function.name() + "' with " + std::to_string(call.rows()) +
                  " rows");
    if (call.unit() >= bundle_.summary.units_size())
      return fail("names unit " + std::to_string(call.unit()) + " of " +
                  std::to_string(bundle_.summary.units_size()));
    const auto &launches = function.launches();
    const auto exchanges =
        std::count_if(launches.begin(), launches.end(),
                      [](const bundle::Launch &launch) { return launch.has_exchange(); });
    if (call.segment() > uint32_t(exchanges))
      return fail("calls segment " + std::to_string(call.segment()) + " of function '" +
                  function.name() + "', which has " + std::to_string(exchanges + 1));
    for (int i = 0; i < bindings.size() && problem_.empty(); ++i) {
      const bundle::AffineSize &bytes = function.arguments(i).bytes();
      int64_t needed;
      if (bytes.fixed() < 0 || bytes.per_row() < 0 ||
          __builtin_mul_overflow(bytes.per_row(), call.rows(), &needed) ||
          __builtin_add_overflow(needed, bytes.fixed(), &needed))
        return fail("argument " + std::to_string(i) + " of function '" + function.name() +
                    "' has no size");
      const bundle::ArgumentKind kind = function.arguments(i).kind();
      // The launches of a segment of a function with exchanges may not access an argument. The
      // verifier checks which do.
      if (exchanges && bindings[i].region.bytes() == 0)
        continue;
      region(p, bindings[i].region, needed,
             kind == bundle::LOCAL_METRICS || kind == bundle::SCALARS ? alignof(double)
                                                                      : alignof(float));
    }
  }

  template <typename List> void members(const List &list) {
    if (list.size() > 0 && std::any_of(list.begin(), list.end(),
                                       [&](uint32_t m) { return m >= bundle_.devices.size(); }))
      fail("names a device that does not exist; there are " +
           std::to_string(bundle_.devices.size()) + " devices");
  }
  template <typename List> static bool contains(const List &list, uint32_t device) {
    return std::find(list.begin(), list.end(), device) != list.end();
  }

  /// Those of this device, concatenated.
  void runs(const bundle::ShardRanges &runs) {
    if (runs.begin_size() != runs.members_size() || runs.end_size() != runs.members_size())
      return fail("the arrays of the shards differ in length");
    members(runs.members());
    int64_t before = 0;
    for (int i = 0; i < runs.members_size(); ++i) {
      if (runs.begin(i) < 0 || runs.begin(i) > runs.end(i) || runs.end(i) > (int64_t(1) << 48))
        return fail("elements [" + std::to_string(runs.begin(i)) + ", " +
                    std::to_string(runs.end(i)) + ") of a whole");
      if (runs.members(i) != device_)
        continue;
      if (runs.begin(i) < before)
        return fail("elements [" + std::to_string(runs.begin(i)) + ", " +
                    std::to_string(runs.end(i)) + ") of this device come after element " +
                    std::to_string(before));
      before = runs.end(i);
    }
  }

  /// Regions of a gather or a reduction on this device, whatever it is of: its whole and its
  /// shards, where it has some.
  void collective(const bundle::Program &p, const bundle::Collective &c) {
    members(c.members);
    runs(c.shards);
    runs(c.parts);
    const size_t size = elementBytes(c.type);
    if (!problem_.empty())
      return;
    if (!size)
      return fail("unknown element type");
    const Held held = c.heldBy(device_, size);
    if (!c.parts.members().empty())
      parts(c, held.whole);
    if (c.isMember(device_))
      region(p, c.full, uint64_t(held.whole.elements()) * size, size);
    if (c.owns(device_))
      region(p, c.shard, uint64_t(held.shards.elements()) * size, size);
    if (!c.isMember(device_) && !c.owns(device_))
      fail("this device takes no part in it");
  }

  /// Members and runs name the same devices, and this one has all of a shard or nothing of it.
  void parts(const bundle::Collective &c, const Compact &held) {
    const auto &named = c.parts.members();
    if (std::any_of(named.begin(), named.end(),
                    [&](uint32_t member) { return !c.isMember(member); }) ||
        (c.isMember(device_) && !contains(named, device_)))
      return fail("names runs of other devices than take part in it");
    for (const Shard &shard : bundle::shardsOf(c.shards))
      if (held.cuts(shard))
        return fail("this device has a part of the shard [" + std::to_string(shard.begin) + ", " +
                    std::to_string(shard.end) + "), expected all of it or nothing");
  }

  /// How many contribute to a shard of this device, at most; each needs one.
  uint64_t maxContributors(const bundle::ReduceScatter &r) {
    const std::vector<Shard> terms = bundle::shardsOf(r.terms());
    size_t max = 0;
    const Compact own = bundle::shardsOf(r.shards(), device_);
    for (const Compact::Run &run : own.runs()) {
      const size_t contributors = terms.empty()
                                      ? size_t(r.contributors_size())
                                      : holdersOf(terms, {device_, run.begin, run.end}).size();
      max = std::max(max, contributors);
      if (contributors == 0)
        fail("no device contributes to elements [" + std::to_string(run.begin) + ", " +
             std::to_string(run.end) + ")");
    }
    return max;
  }

  /// Where `terms` terms of a direct sum arrive, `stride` bytes apart.
  void parts(const bundle::Program &p, const bundle::Region &parts, bundle::ElementType type,
             uint64_t terms, uint64_t stride) {
    const uint32_t max = maxTerms(bundle_.summary, type);
    if (max < 2)
      return fail("no function adds the terms of direct transfers");
    region(p, parts, (terms <= max ? terms : terms + 2) * stride, kRegionAlignment);
  }

  /// \param terms  of a sum of this device, at most
  void rounds(const bundle::Program &p, const bundle::ReduceScatter &r, const bundle::Collective &c,
              uint64_t terms) {
    int64_t largest = 0;
    for (int i = 0; i < r.shards().members_size(); ++i)
      largest = std::max(largest, r.shards().end(i) - r.shards().begin(i));
    if (r.chunk() > c.elements() || r.chunk() < (largest > 0 ? 1 : 0))
      return fail("a direct reduction in rounds of " + std::to_string(r.chunk()) + " elements");
    if (r.term_type())
      return roundedRounds(p, r, c, terms);
    if (terms > 1)
      parts(p, r.receive_buffer(), r.type(), terms,
            partStride(uint64_t(r.chunk()) * elementBytes(r.type())));
  }

  /// The same with rounded terms, which contributors round in `send_buffer`.
  void roundedRounds(const bundle::Program &p, const bundle::ReduceScatter &r,
                     const bundle::Collective &c, uint64_t terms) {
    const uint32_t max = roundedSumFunctions(bundle_.summary).maxTerms();
    if (max < 2)
      return fail("no function adds the rounded terms of direct transfers");
    if (terms > 1)
      region(p, r.receive_buffer(), roundedPartsBytes(max, terms, r.chunk()), kRegionAlignment);
    std::set<uint32_t> owners;
    for (const Shard &shard : bundle::shardsOf(r.shards()))
      if (const std::vector<uint32_t> holders = holdersOf(c.runs(), shard);
          !shard.empty() && shard.device != device_ && holders.size() > 1 &&
          contains(holders, device_))
        owners.insert(shard.device);
    if (!owners.empty())
      region(p, r.send_buffer(), owners.size() * roundedStride(r.chunk()), kRegionAlignment);
  }

  void instruction(const bundle::Program &p, const Instruction &e) {
    const bundle::ModelSummary &s = bundle_.summary;
    switch (e.what_case()) {
    case Instruction::kCompute:
      for (const bundle::Call &c : e.compute().calls())
        call(p, c);
      break;
    case Instruction::kCopy:
      region(p, e.copy().from());
      region(p, e.copy().to(), e.copy().from().bytes());
      break;
    case Instruction::kSend:
      below("device", e.send().peer(), bundle_.devices.size());
      region(p, e.send().region(), 1);
      break;
    case Instruction::kReceive:
      below("device", e.receive().peer(), bundle_.devices.size());
      region(p, e.receive().region(), 1);
      break;
    case Instruction::kLoadInput: {
      const bundle::LoadInput &load = e.load_input();
      if (!below("input", load.input(), s.inputs_size()))
        return;
      if (load.rows() < 0 || load.sample_base() < 0 ||
          load.rows() > bundle_.batch - load.sample_base())
        return fail("samples [" + std::to_string(load.sample_base()) + ", +" +
                    std::to_string(load.rows()) + ") of a batch of " +
                    std::to_string(bundle_.batch));
      region(p, load.region(), load.rows() * s.inputs(load.input()).bytes_per_row());
      break;
    }
    case Instruction::kLoadScalars:
      region(p, e.load_scalars().region(), sizeof(zorse::abi::StepScalars),
             alignof(zorse::abi::StepScalars));
      break;
    case Instruction::kAllGather:
      collective(p, *bundle::collectiveOf(e));
      break;
    case Instruction::kReduceScatter:
      if (e.reduce_scatter().contributors_size() == 0)
        return fail("a reduction without contributors");
      if (e.reduce_scatter().term_type() && (e.reduce_scatter().term_type() != bundle::BF16 ||
                                             e.reduce_scatter().type() != bundle::F32))
        return fail(
            "a reduction rounds terms to another type than bf16, or terms that are not f32");
      collective(p, *bundle::collectiveOf(e));
      if (problem_.empty())
        if (const uint64_t terms = maxContributors(e.reduce_scatter());
            p.queues(int(e.queue())).kind() == bundle::DEVICE_TO_DEVICE && problem_.empty())
          rounds(p, e.reduce_scatter(), *bundle::collectiveOf(e), terms);
      break;
    case Instruction::kAllReduce:
      members(e.all_reduce().members());
      region(p, e.all_reduce().region(), 1, sizeof(double));
      if (!contains(e.all_reduce().members(), device_))
        fail("this device is not a participant");
      if (e.all_reduce().type() != bundle::F64 && e.all_reduce().type() != bundle::F32)
        fail("expects element type F32 or F64");
      else if (p.queues(int(e.queue())).kind() == bundle::DEVICE_TO_DEVICE)
        parts(p, e.all_reduce().receive_buffer(), e.all_reduce().type(),
              e.all_reduce().members_size(), e.all_reduce().region().bytes());
      break;
    case Instruction::kReadMetrics:
      region(p, e.read_metrics().region(), sizeof(zorse::abi::StepScalars));
      break;
    case Instruction::WHAT_NOT_SET:
      fail("contains nothing that this runtime knows");
      break;
    }
  }

  /// Checks that the program of every participant of a transfer has its counterpart, of the same
  /// kind and size. If one were missing, the others would wait forever.
  void transfers() {
    struct Halves {
      std::map<uint32_t, const Instruction *> byDevice;
    };
    std::map<uint32_t, Halves> transfers;
    for (uint32_t d = 0; d < bundle_.programs.size(); ++d)
      for (const Instruction &instruction : bundle_.programs[d].instructions())
        switch (instruction.what_case()) {
        case Instruction::kSend:
        case Instruction::kReceive:
        case Instruction::kAllGather:
        case Instruction::kReduceScatter:
        case Instruction::kAllReduce:
          transfers[instruction.id()].byDevice[d] = &instruction;
          break;
        default:
          break;
        }
    for (const auto &[id, halves] : transfers)
      for (const auto &[device, instruction] : halves.byDevice) {
        where_ = "programs/" + std::to_string(device) + ".pb, instruction " + std::to_string(id) +
                 ": ";
        device_ = device;
        std::vector<uint32_t> expected = participants(device, *instruction);
        // Comparing the first with all others is sufficient, because equality is transitive. A send
        // has only one counterpart.
        const auto &[first, firstInstruction] = *halves.byDevice.begin();
        if (!matches(*firstInstruction, first, *instruction, device))
          return fail("does not match its counterpart on device " + bundle_.devices[first].name);
        if (!std::equal(expected.begin(), expected.end(), halves.byDevice.begin(),
                        halves.byDevice.end(),
                        [](uint32_t a, const auto &b) { return a == b.first; }))
          return fail(std::to_string(expected.size()) + " devices take part in it, but " +
                      std::to_string(halves.byDevice.size()) + " have it in their programs");
      }
  }

  static std::vector<uint32_t> participants(uint32_t device, const Instruction &instruction) {
    if (!instruction.has_send() && !instruction.has_receive())
      return bundle::participantsOf(instruction);
    const uint32_t peer = instruction.has_send() ? instruction.send().peer()
                                                 : instruction.receive().peer();
    return peer == device ? std::vector{device}
                          : std::vector{std::min(device, peer), std::max(device, peer)};
  }

  static bool matches(const Instruction &a, uint32_t deviceA, const Instruction &b,
                      uint32_t deviceB) {
    if (deviceA == deviceB)
      return true;
    if (a.phase() != b.phase())
      return false;
    if (a.has_send())
      return b.has_receive() && a.send().peer() == deviceB && b.receive().peer() == deviceA &&
             a.send().region().bytes() == b.receive().region().bytes();
    if (a.has_receive())
      return b.has_send() && matches(b, deviceB, a, deviceA);
    auto equal = [](const auto &x, const auto &y) {
      return std::equal(x.begin(), x.end(), y.begin(), y.end());
    };
    auto equalRuns = [&](const bundle::ShardRanges &x, const bundle::ShardRanges &y) {
      return equal(x.members(), y.members()) && equal(x.begin(), y.begin()) &&
             equal(x.end(), y.end());
    };
    if (const auto one = bundle::collectiveOf(a), other = bundle::collectiveOf(b); one)
      return other && one->gathers == other->gathers && one->type == other->type &&
             equal(one->members, other->members) && equalRuns(one->shards, other->shards) &&
             equalRuns(one->parts, other->parts);
    return a.has_all_reduce() && b.has_all_reduce() &&
           a.all_reduce().type() == b.all_reduce().type() &&
           equal(a.all_reduce().members(), b.all_reduce().members()) &&
           a.all_reduce().region().bytes() == b.all_reduce().region().bytes();
  }

  const Bundle &bundle_;
  uint32_t device_ = 0;
  std::string where_, problem_;
};

} // namespace

Status zorse::runtime::checkPrograms(const Bundle &bundle) { return Checker(bundle).check(); }
