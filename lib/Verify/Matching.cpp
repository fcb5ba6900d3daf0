// Checks over all devices: halves of transfers, members of collectives, cells, owners of state and
// reports.
#include "Device.h"
#include "Reductions.h"

#include <array>
#include <optional>
#include <tuple>
#include <utility>

using namespace zorse;
using namespace zorse::verify;

namespace {

/// An order-dependent digest of numbers (FNV-1a over 64-bit words, each followed by a
/// multiplication and a shift).
struct Digest {
  uint64_t state = 0xCBF29CE484222325ull;
  void add(uint64_t word) {
    state = (state ^ word) * 0x9E3779B97F4A7C15ull;
    state ^= state >> 29;
  }
  void add(const google::protobuf::RepeatedField<uint32_t> &list) {
    add(uint64_t(list.size()));
    for (uint32_t item : list)
      add(uint64_t(item));
  }
  void add(const bundle::Value &value) {
    for (uint64_t word :
         {uint64_t(value.kind()), uint64_t(value.id()), uint64_t(value.cut()),
          uint64_t(value.begin()), uint64_t(value.end()), uint64_t(value.version())})
      add(word);
  }
  void add(const bundle::ShardRanges &extents) {
    add(extents.members());
    for (int i = 0; i < extents.members_size(); ++i) {
      add(uint64_t(extents.begin(i)));
      add(uint64_t(extents.end(i)));
    }
  }
};

} // namespace

void Device::collectHalves() {
  result.records.reserve(size_t(program.instructions_size()));
  for (const auto &instruction : program.instructions()) {
    ParticipantRecord record;
    record.id = instruction.id();
    record.device = program.device();
    record.phase = instruction.phase();
    record.what = instruction.what_case();
    Digest digest;
    digest.add(uint64_t(program.queues(int(instruction.queue())).kind() ==
                        bundle::DEVICE_TO_DEVICE)); // either all halves are direct, or none
    const bundle::Value *value = nullptr;
    switch (instruction.what_case()) {
    case bundle::Instruction::kSend:
      record.peer = instruction.send().peer();
      record.bytes = int64_t(instruction.send().region().bytes());
      value = &instruction.send().value();
      break;
    case bundle::Instruction::kReceive:
      record.peer = instruction.receive().peer();
      record.bytes = int64_t(instruction.receive().region().bytes());
      value = &instruction.receive().value();
      break;
    case bundle::Instruction::kAllGather:
    case bundle::Instruction::kReduceScatter: {
      const bundle::Collective collective = *bundle::collectiveOf(instruction);
      value = &collective.value;
      digest.add(uint64_t(collective.group));
      digest.add(uint64_t(collective.type));
      digest.add(uint64_t(collective.termType));
      digest.add(uint64_t(instruction.reduce_scatter().order()));
      digest.add(collective.shards);
      digest.add(collective.members);
      digest.add(collective.parts);
      digest.add(uint64_t(instruction.reduce_scatter().chunk()));
      break;
    }
    case bundle::Instruction::kAllReduce: {
      const auto &reduce = instruction.all_reduce();
      value = &reduce.from();
      record.bytes = int64_t(reduce.region().bytes());
      digest.add(uint64_t(reduce.type()));
      digest.add(uint64_t(reduce.order()));
      digest.add(reduce.members());
      digest.add(reduce.to());
      break;
    }
    default:
      record.what = bundle::Instruction::WHAT_NOT_SET;
      break;
    }
    if (value) {
      digest.add(*value);
      record.value = {value->kind(), value->id(), value->cut(), value->begin(), value->end()};
    }
    record.digest = digest.state;
    if (std::vector<uint32_t> participants = participantsOf(instruction);
        !participants.empty() && participants[0] == program.device())
      record.whole = std::make_shared<bundle::Instruction>(instruction);
    result.records.push_back(std::move(record));
  }
}

namespace {

class MatchingChecker {
public:
  MatchingChecker(const Model &model, std::vector<DeviceResult> &results,
                  std::vector<Finding> &findings)
      : model(model), results(results), findings(findings) {}

  void run() {
    std::vector<std::pair<int64_t, const ParticipantRecord *>> byId; // in program order
    for (const auto &result : results)
      for (const auto &record : result.records)
        byId.push_back({record.id, &record});
    std::stable_sort(byId.begin(), byId.end(),
                     [](const auto &a, const auto &b) { return a.first < b.first; });
    std::vector<const ParticipantRecord *> records;
    for (const auto &[id, record] : byId)
      records.push_back(record);
    collectOwners();
    for (size_t i = 0; i < records.size();) {
      size_t end = i + 1;
      while (end < records.size() && records[end]->id == records[i]->id)
        ++end;
      match(&records[i], end - i);
      i = end;
    }
    checkTasks();
    checkOwners();
    if (findings.empty()) // replays that stopped early have not seen every sum and report
      checkSums();
  }

private:
  const Model &model;
  std::vector<DeviceResult> &results;
  std::vector<Finding> &findings;
  std::vector<std::vector<Shard>> owners; ///< per group, ascending
  /// All-reduces with their members.
  std::vector<std::pair<const ParticipantRecord *, std::vector<uint32_t>>> reductions;

  std::string device(uint32_t index) const { return model.plan.devices[index].name; }
  void fail(Code code, int32_t on, int64_t instruction, const std::string &message) {
    findings.push_back({code, on, instruction, message});
  }
  void failHalf(Code code, const ParticipantRecord &record, const std::string &message) {
    fail(code, int32_t(record.device), record.id,
         "instruction " + std::to_string(record.id) + ", " + describe(record) + " on " +
             device(record.device) + ": " + message);
  }

  void collectOwners() {
    owners.resize(model.summary.groups_size());
    for (const auto &result : results)
      for (const auto &owned : result.owned)
        owners[owned.group].push_back({uint32_t(result.device), owned.begin, owned.end});
    for (auto &list : owners)
      std::sort(list.begin(), list.end());
  }

  std::string describe(const ParticipantRecord &record) const {
    bundle::Value value;
    value.set_kind(record.value.kind);
    value.set_id(record.value.id);
    value.set_cut(record.value.cut);
    value.set_begin(record.value.begin);
    value.set_end(record.value.end);
    std::string text = describeValue(model, value);
    switch (record.what) {
    case bundle::Instruction::kSend:
      return "send of " + text + " to " + device(record.peer);
    case bundle::Instruction::kReceive:
      return "receive of " + text + " from " + device(record.peer);
    case bundle::Instruction::kAllGather:
      return "all-gather of " + text;
    case bundle::Instruction::kReduceScatter:
      return "reduce-scatter of " + text;
    case bundle::Instruction::kAllReduce:
      return "all-reduce of " + text;
    default:
      return "a local task";
    }
  }

  void match(const ParticipantRecord *const *records, size_t count) {
    const ParticipantRecord &first = *records[0];
    if (first.what == bundle::Instruction::WHAT_NOT_SET) {
      if (count > 1)
        failHalf(Code::Unmatched, first,
                 "has the same id as " + describe(*records[1]) + " on " +
                     device(records[1]->device));
      return;
    }
    if (first.what == bundle::Instruction::kSend || first.what == bundle::Instruction::kReceive) {
      const ParticipantRecord *send = nullptr, *receive = nullptr;
      for (size_t i = 0; i < count; ++i) {
        if (records[i]->what == bundle::Instruction::kSend)
          send = records[i];
        if (records[i]->what == bundle::Instruction::kReceive)
          receive = records[i];
      }
      if (count != 2 || !send || !receive)
        return failHalf(Code::Unmatched, first,
                        count == 1 ? "has no other half: expects one on " + device(first.peer)
                                   : "expects one send and one receive under this id, found " +
                                         std::to_string(count) + " instructions");
      if (send->peer != receive->device || receive->peer != send->device)
        return failHalf(Code::Unmatched, *send,
                        "goes to " + device(send->peer) + ", but " + device(receive->device) +
                            " receives it from " + device(receive->peer));
      if (send->bytes != receive->bytes)
        return failHalf(Code::Mismatched, *send,
                        "has " + std::to_string(send->bytes) + " bytes, " +
                            device(receive->device) + " expects " + std::to_string(receive->bytes));
      if (send->digest != receive->digest)
        return failHalf(Code::Mismatched, *send,
                        device(receive->device) + " expects another value: " + describe(*receive));
      if (send->phase != receive->phase)
        return failHalf(Code::Mismatched, *send,
                        "is in phase " + std::to_string(int(send->phase)) + ", its other half in " +
                            std::to_string(int(receive->phase)));
      return;
    }
    const ParticipantRecord *whole = nullptr;
    std::vector<uint32_t> present;
    for (size_t i = 0; i < count; ++i) {
      const ParticipantRecord &record = *records[i];
      if (record.what != first.what || record.digest != first.digest ||
          record.bytes != first.bytes || record.phase != first.phase)
        return failHalf(Code::Mismatched, record,
                        "differs from the half on " + device(first.device) + ", " +
                            describe(first) +
                            ", in kind, size, value, members, extents, order or phase");
      if (record.whole)
        whole = &record;
      present.push_back(record.device);
    }
    if (!whole)
      return failHalf(Code::Unmatched, first, "its first member has no half");
    std::vector<uint32_t> participants = participantsOf(*whole->whole);
    std::sort(present.begin(), present.end());
    for (uint32_t member : participants)
      if (!std::binary_search(present.begin(), present.end(), member))
        return failHalf(Code::Unmatched, first, "names " + device(member) + ", which has no half");
    if (present != participants)
      return failHalf(Code::Unmatched, first, "has a half on a device that is not a member");
    if (whole->what != bundle::Instruction::kAllReduce)
      return checkCollective(*whole);
    const auto &members = whole->whole->all_reduce().members();
    if (!model.isOrderOfSum({members.begin(), members.end()}))
      failHalf(Code::Contributions, *whole, "adds in another order than that of the devices");
    reductions.push_back({whole, std::move(participants)});
  }

  /// Checks a collective. A collective of state must name exactly the owners of the state, and a
  /// reduction all contributors. The devices have checked the kind of its value.
  void checkCollective(const ParticipantRecord &record) {
    const bundle::Collective collective = *bundle::collectiveOf(*record.whole);
    std::vector<Shard> named = bundle::shardsOf(collective.shards);
    named.erase(std::remove_if(named.begin(), named.end(),
                               [](const Shard &shard) { return shard.empty(); }),
                named.end());
    std::sort(named.begin(), named.end());
    const bool ofGroup = isState(record.value.kind) && record.value.id < owners.size();
    // Two results for an element: one could replace a term that the other still needs.
    for (size_t i = 1; ofGroup && i < named.size(); ++i)
      if (named[i].begin < named[i - 1].end)
        return failHalf(Code::Mismatched, record,
                        "its shards on " + device(named[i - 1].device) + " and " +
                            device(named[i].device) + " overlap");
    std::optional<Reduction> reduction;
    if (ofGroup && !collective.gathers)
      reduction.emplace(model, collective);
    if (!collective.gathers)
      checkRounding(record, collective, ofGroup);
    if (reduction && reduction->form != Reduction::Form::Exchange)
      return checkLevel(record, *reduction);
    // Devices may pass on what they have received: each device's replay checks what it has.
    if (ofGroup && collective.gathers && collective.parts.members_size())
      return checkReads(record, collective, named);
    if (const uint32_t group = record.value.id;
        ofGroup && named != owners[group] &&
        withoutCuts(group, named) != withoutCuts(group, owners[group]))
      failHalf(Code::Mismatched, record, "its shards are not the extents the owners hold as state");
    if (!collective.gathers) {
      checkContributors(record, collective, named);
      const bundle::ReductionOrder order = record.whole->reduce_scatter().order();
      if (order != bundle::FIXED_ORDER)
        failHalf(Code::Malformed, record, "states no order of summation");
    }
  }

  /// Checks that terms of a sum are rounded exactly if the plan says so.
  void checkRounding(const ParticipantRecord &record, const bundle::Collective &collective,
                     bool ofGradients) {
    const bool rounds = collective.termType != collective.type;
    if (rounds && (collective.termType != bundle::BF16 || collective.type != bundle::F32))
      return failHalf(Code::Malformed, record,
                      "rounds terms to another type than bf16, or terms that are not f32");
    if (rounds == (ofGradients && model.roundsTerms(collective)))
      return;
    failHalf(Code::Mismatched, record,
             rounds ? "rounds its terms to bf16, which the plan's gradient_wire does not say"
                    : "does not round its terms to bf16, as the plan's gradient_wire says");
  }

  /// Checks that a level of a reduction adds the sums of all children of a group of the tree. That
  /// devices hold these sums, and that owners get those of all contributors, is checked by the
  /// replay of each device.
  void checkLevel(const ParticipantRecord &record, const Reduction &reduction) {
    const std::optional<Shard> bad =
        reduction.form == Reduction::Form::Level ? reduction.incompleteShard() : std::nullopt;
    if (bad || reduction.form == Reduction::Form::None)
      failHalf(
          Code::Contributions, record,
          "does not add one sum for each part of its group of the tree" +
              (bad ? " to elements " + std::to_string(bad->begin) + "-" + std::to_string(bad->end)
                   : std::string()));
  }

  /// Checks that shards cover what the members of a gather read. \param shards  ascending
  void checkReads(const ParticipantRecord &record, const bundle::Collective &collective,
                  const std::vector<Shard> &shards) {
    for (const Shard &read : bundle::shardsOf(collective.parts))
      model.forPieces(
          record.value.id, read.begin, read.end, [&](int64_t begin, int64_t end, uint32_t) {
            auto shard =
                std::lower_bound(shards.begin(), shards.end(), begin,
                                 [](const Shard &s, int64_t element) { return s.end <= element; });
            for (; begin < end && shard != shards.end() && shard->begin <= begin; ++shard)
              begin = shard->end;
            if (begin < end)
              failHalf(Code::Mismatched, record,
                       "no device has elements " + std::to_string(begin) + "-" +
                           std::to_string(end) + ", which " + device(read.device) + " reads");
          });
  }

  /// The shards without padding, which does not have to be moved. Adjacent shards of an owner are
  /// joined, because their division does not matter.
  std::vector<Shard> withoutCuts(uint32_t group, const std::vector<Shard> &shards) const {
    std::vector<Shard> joined;
    for (const Shard &shard : shards)
      model.forPieces(group, shard.begin, shard.end, [&](int64_t begin, int64_t end, uint32_t) {
        if (!joined.empty() && joined.back().end == begin && joined.back().device == shard.device)
          joined.back().end = end;
        else
          joined.push_back({shard.device, begin, end});
      });
    return joined;
  }

  /// Checks that the contributors to every shard are exactly the devices with tasks that add to it,
  /// in the order of the plan's devices: it decides the bits of the sum.
  void checkContributors(const ParticipantRecord &record, const bundle::Collective &collective,
                         const std::vector<Shard> &shards) {
    const std::vector<Shard> terms = bundle::shardsOf(collective.parts);
    const bool isGroup = collective.value.kind() != bundle::Value::EXCHANGED;
    auto check = [&](std::vector<uint32_t> contributors, const std::vector<uint32_t> &expected,
                     const std::string &to) {
      if (!std::is_sorted(contributors.begin(), contributors.end()))
        return failHalf(Code::Contributions, record,
                        "adds" + to + " in another order than that of the devices");
      for (uint32_t one : expected)
        if (!std::binary_search(contributors.begin(), contributors.end(), one))
          return failHalf(Code::Contributions, record,
                          "misses contributor " + device(one) + to +
                              ", which has tasks that add to it");
      if (contributors.size() != expected.size())
        failHalf(Code::Contributions, record,
                 "names a contributor" + to + " without tasks that add to it");
    };
    if (terms.empty())
      return check({collective.members.begin(), collective.members.end()},
                   model.contributorsOf(collective.value), "");
    std::vector<std::vector<uint32_t>> contributors(shards.size());
    for (const Shard &term : terms) {
      auto shard = std::lower_bound(shards.begin(), shards.end(), term.begin,
                                    [](const Shard &s, int64_t begin) { return s.begin < begin; });
      for (; shard != shards.end() && shard->end <= term.end; ++shard)
        contributors[size_t(shard - shards.begin())].push_back(term.device);
    }
    for (size_t s = 0; s < shards.size(); ++s) {
      std::vector<uint32_t> expected = model.contributorsOf(collective.value);
      bool padding = isGroup;
      if (isGroup)
        model.forPieces(record.value.id, shards[s].begin, shards[s].end,
                        [&](int64_t begin, int64_t end, uint32_t) {
                          if (std::exchange(padding, false))
                            expected = model.contributorsTo(record.value.id, {0, begin, end});
                        });
      if (!padding)
        check(contributors[s], expected,
              " to elements " + std::to_string(shards[s].begin) + "-" +
                  std::to_string(shards[s].end));
    }
  }

  void checkTasks() {
    constexpr bundle::Compute::Task kinds[] = {bundle::Compute::F, bundle::Compute::B,
                                               bundle::Compute::W};
    std::vector<std::array<int, 3>> seen(model.plan.cells.size(), std::array<int, 3>{});
    for (const auto &result : results)
      for (auto [cell, task] : result.tasks)
        ++seen[cell][task - bundle::Compute::F];
    for (size_t c = 0; c < seen.size(); ++c) {
      const auto &cell = model.plan.cells[c];
      for (size_t k = 0; k < 3; ++k) {
        const int expected = model.hasWork(cell, kinds[k]);
        if (seen[c][k] != expected)
          fail(Code::Task, int32_t(cell.device), -1,
               std::string(1, "FBW"[k]) + "(units " + std::to_string(cell.firstUnit) + "-" +
                   std::to_string(cell.endUnit) + ", samples " + std::to_string(cell.firstSample) +
                   "-" + std::to_string(cell.endSample) + ") on " + device(cell.device) +
                   " occurs " + std::to_string(seen[c][k]) + " times, expects " +
                   (expected ? "once" : "none: the plan has no such task"));
      }
    }
  }

  /// Every element of trainable state must have exactly one owner, and the plan's explicit extents
  /// must be used. The owner's replay checks that it updates its elements exactly once.
  void checkOwners() {
    for (int g = 0; g < model.summary.groups_size(); ++g) {
      if (!model.trainable(uint32_t(g)))
        continue;
      int64_t next = 0;
      bool good = true;
      for (const Shard &shard : owners[g]) {
        good = good && shard.begin == next;
        next = shard.end;
      }
      if (!good || next != model.summary.groups(g).elements())
        fail(Code::Update, -1, -1,
             "the owners' extents do not tile the " +
                 std::to_string(model.summary.groups(g).elements()) + " elements of group '" +
                 model.summary.groups(g).name() + "'");
    }
    std::vector<std::pair<uint32_t, uint32_t>> named; // (group, device)
    for (const auto &planned : model.plan.owners)
      named.push_back({planned.group, planned.device});
    std::sort(named.begin(), named.end());
    for (uint32_t g = 0; g < owners.size(); ++g) {
      auto first = std::lower_bound(named.begin(), named.end(), std::make_pair(g, 0u));
      if (first == named.end() || first->first != g || !model.trainable(g))
        continue;
      for (const Shard &shard : owners[g])
        if (!std::binary_search(named.begin(), named.end(), std::make_pair(g, shard.device)))
          fail(Code::Update, int32_t(shard.device), -1,
               "holds state of group '" + model.summary.groups(int(g)).name() +
                   "', which the plan gives to others");
    }
    for (const auto &planned : model.plan.owners) {
      if (planned.group >= owners.size() || planned.begin < 0 || planned.begin == planned.end ||
          !model.trainable(planned.group))
        continue;
      const auto &list = owners[planned.group];
      if (!std::binary_search(list.begin(), list.end(),
                              Shard{planned.device, planned.begin, planned.end}))
        fail(Code::Update, int32_t(planned.device), -1,
             "does not hold elements " + std::to_string(planned.begin) + "-" +
                 std::to_string(planned.end) + " of group '" +
                 model.summary.groups(int(planned.group)).name() + "', as the plan requires");
    }
  }

  void checkSums() {
    std::vector<uint32_t> normDevices, lossDevices = model.lossDevices;
    for (const auto &result : results)
      if (!result.owned.empty())
        normDevices.push_back(uint32_t(result.device));
    std::sort(normDevices.begin(), normDevices.end());
    auto only = [](const std::vector<uint32_t> &devices, uint32_t device) {
      return devices.empty() || (devices.size() == 1 && devices[0] == device);
    };
    for (const auto &result : results) {
      if (!result.present)
        continue;
      uint32_t d = uint32_t(result.device);
      if (result.readsOwnNormAsGlobal && !only(normDevices, d))
        fail(Code::Norm, result.device, -1,
             "decides or reports with its own norm, expects that of all owners");
      if (result.readsOwnLossAsGlobal && !only(lossDevices, d))
        fail(Code::Loss, result.device, -1,
             "decides or reports with its own loss sums, expects those of all devices");
    }
    // All-reduces of sums must include every device that has a contribution.
    for (const auto &[record, members] : reductions) {
      for (uint32_t d : lossDevices)
        if (!std::binary_search(members.begin(), members.end(), d))
          failHalf(Code::Loss, *record, "misses " + device(d) + ", which has loss rows");
      for (uint32_t d : normDevices)
        if (!std::binary_search(members.begin(), members.end(), d))
          failHalf(Code::Norm, *record, "misses " + device(d) + ", which owns state");
    }
    // The host has one copy of the block: a second report would overwrite the first, or be
    // overwritten.
    size_t reports = 0;
    bool training = false, evaluation = false;
    for (const auto &result : results) {
      for (int64_t instruction : result.reports)
        if (++reports > 1)
          fail(Code::Report, result.device, instruction,
               "instruction " + std::to_string(instruction) +
                   " is a second report of the step, expects one on one device");
      training = training || result.reportsTraining;
      evaluation = evaluation || result.reportsEvaluation;
    }
    const bool something = model.decides() || !lossDevices.empty();
    if (something && !training)
      fail(Code::Report, -1, -1, "no device reports the loss sums in training");
    if (something && !evaluation)
      fail(Code::Report, -1, -1, "no device reports the loss sums in evaluation");
  }
};

} // namespace

void verify::checkMatching(const Model &model, std::vector<DeviceResult> &results,
                           std::vector<Finding> &findings) {
  MatchingChecker(model, results, findings).run();
}
