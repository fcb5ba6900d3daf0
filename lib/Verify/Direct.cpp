// Checks direct transfers between GPUs, on the queue of kind DEVICE_TO_DEVICE: participants,
// memories, and the buffers in which terms of sums arrive.
#include "Device.h"

#include <set>

using namespace zorse;
using namespace zorse::verify;

namespace {

/// Alignment of the terms of sums, in bytes.
constexpr int64_t kPartAlignment = 512, kArgumentAlignment = 64;

int64_t padded(int64_t bytes) {
  return (bytes + kPartAlignment - 1) / kPartAlignment * kPartAlignment;
}

bool overlap(const bundle::Region &a, const bundle::Region &b) {
  return a.bytes() && b.bytes() && a.arena() == b.arena() && a.offset() < b.offset() + b.bytes() &&
         b.offset() < a.offset() + a.bytes();
}

bool contains(const google::protobuf::RepeatedField<uint32_t> &list, uint32_t device) {
  return std::find(list.begin(), list.end(), device) != list.end();
}

} // namespace

/// Checks the device memory for `terms` terms, `stride` bytes apart, and for two more if no
/// function adds that many.
bool Device::checkParts(const bundle::Instruction &instruction, const bundle::Region &parts,
                        bundle::ElementType type, int64_t terms, int64_t stride) {
  const int64_t id = int64_t(instruction.id());
  const uint32_t max = model.maxTerms(type);
  if (max < 2)
    return report(Code::Unsupported, id,
                  where(instruction) + ": no function adds the terms of direct transfers");
  const int64_t bytes = product(terms <= int64_t(max) ? terms : terms + 2, stride);
  if (bytes < 0 || int64_t(parts.bytes()) != bytes)
    return report(Code::Size, id,
                  where(instruction) + ": its terms have " + std::to_string(parts.bytes()) +
                      " bytes, expects " + std::to_string(bytes));
  if (parts.offset() % uint64_t(kArgumentAlignment))
    return report(Code::Alignment, id,
                  where(instruction) + ": its terms start at byte " +
                      std::to_string(parts.offset()) + ", expects a multiple of 64");
  return true;
}

/// Checks that all participants exchange directly.
bool Device::checkDirectMembers(const bundle::Instruction &instruction) {
  const int64_t id = int64_t(instruction.id());
  auto groupOf = [&](uint32_t device) {
    return device < options.d2dGroups.size() ? options.d2dGroups[device] : -1;
  };
  std::vector<uint32_t> members = participantsOf(instruction);
  if (instruction.has_send())
    members = {program.device(), instruction.send().peer()};
  else if (instruction.has_receive())
    members = {program.device(), instruction.receive().peer()};
  if (members.empty())
    return report(
        Code::Task, id,
        where(instruction) +
            ": is on a queue of kind DEVICE_TO_DEVICE, which is for transfers and collectives");
  for (uint32_t member : members)
    if (groupOf(member) < 0 || groupOf(member) != groupOf(program.device()))
      return report(Code::Reach, id,
                    where(instruction) + ": is a direct transfer between " +
                        deviceName(program.device()) + " and " + deviceName(member) +
                        ", which do not exchange directly");
  return true;
}

bool Device::checkOnDevice(const bundle::Instruction &instruction, const bundle::Region &region) {
  return !region.bytes() || program.arenas(int(region.arena())).kind() == bundle::DEVICE ||
         report(Code::Reach, int64_t(instruction.id()),
                where(instruction) +
                    ": is a direct transfer but uses host memory, expects device memory");
}

bool Device::checkSumAlignment(const bundle::Instruction &instruction, uint64_t offset) {
  return offset % uint64_t(kArgumentAlignment) == 0 ||
         report(Code::Alignment, int64_t(instruction.id()),
                where(instruction) + ": its sum starts at byte " + std::to_string(offset) +
                    ", expects a multiple of 64");
}

/// Checks the memories of a reduce-scatter, its rounds and the buffer of its terms.
bool Device::checkDirectReduceScatter(const bundle::Instruction &instruction) {
  const int64_t id = int64_t(instruction.id());
  const auto &reduce = instruction.reduce_scatter();
  const bundle::Collective collective = *bundle::collectiveOf(instruction);
  const int64_t size = elementSize(reduce.type());
  if (!checkRegion(reduce.receive_buffer(), &instruction, "parts", /*mayBeAbsent=*/true) ||
      !checkOnDevice(instruction, reduce.full()) || !checkOnDevice(instruction, reduce.shard()) ||
      !checkRegion(reduce.send_buffer(), &instruction, "sends", /*mayBeAbsent=*/true) ||
      !checkOnDevice(instruction, reduce.receive_buffer()) ||
      !checkOnDevice(instruction, reduce.send_buffer()))
    return false;
  const Held held = heldBy(program.device(), collective);
  const std::vector<Shard> runs = collective.runs();
  int64_t largest = 0, terms = 0;
  for (const Shard &shard : bundle::shardsOf(reduce.shards()))
    largest = std::max(largest, shard.size());
  bool arguments = true;
  for (const Compact::Run &run : held.shards.runs()) {
    terms =
        std::max(terms, int64_t(holdersOf(runs, {program.device(), run.begin, run.end}).size()));
    arguments = arguments &&
                (terms < 2 || checkSumAlignment(instruction, reduce.shard().offset() +
                                                                 uint64_t(run.place * size)));
  }
  const bool rounds = reduce.chunk() < largest; // every round then begins at the alignment of an
                                                // argument
  if (reduce.chunk() < (largest ? 1 : 0) || reduce.chunk() > kMaxSize ||
      (rounds && product(reduce.chunk(), size) % kPartAlignment))
    return report(Code::Malformed, id,
                  where(instruction) + ": rounds of " + std::to_string(reduce.chunk()) +
                      " elements: expects as many as the largest shard has, " +
                      std::to_string(largest) +
                      ", or a part of them that is a multiple of 512 bytes");
  if (!checkSends(instruction))
    return false;
  if (overlap(reduce.receive_buffer(), reduce.full()) ||
      overlap(reduce.receive_buffer(), reduce.shard()))
    return report(Code::Alias, id,
                  where(instruction) + ": its terms arrive in memory that it reads or writes");
  if (terms < 2)
    return !reduce.receive_buffer().bytes() ||
           report(Code::Size, id, where(instruction) + ": has memory for terms that do not arrive");
  const int64_t bytes = product(reduce.chunk(), size);
  if (bytes < 0 || !arguments)
    return false;
  return collective.termType == reduce.type()
             ? checkParts(instruction, reduce.receive_buffer(), reduce.type(), terms, padded(bytes))
             : checkRoundedParts(instruction, terms);
}

/// Checks the device memory for rounded terms: `terms` that arrive, with two f32 sums if no
/// function adds that many.
bool Device::checkRoundedParts(const bundle::Instruction &instruction, int64_t terms) {
  const auto &reduce = instruction.reduce_scatter();
  const int64_t id = int64_t(instruction.id());
  const uint32_t max = model.maxRoundedTerms();
  if (max < 2)
    return report(Code::Unsupported, id,
                  where(instruction) + ": no function adds rounded terms of direct transfers");
  const int64_t rounded = padded(product(reduce.chunk(), elementSize(bundle::BF16))),
                bytes = product(terms, rounded) +
                        (terms > int64_t(max)
                             ? 2 * padded(product(reduce.chunk(), elementSize(bundle::F32)))
                             : 0);
  if (int64_t(reduce.receive_buffer().bytes()) != bytes)
    return report(Code::Size, id,
                  where(instruction) + ": its rounded terms have " +
                      std::to_string(reduce.receive_buffer().bytes()) + " bytes, expects " +
                      std::to_string(bytes));
  return reduce.receive_buffer().offset() % uint64_t(kArgumentAlignment) == 0 ||
         report(Code::Alignment, id,
                where(instruction) + ": its terms start at byte " +
                    std::to_string(reduce.receive_buffer().offset()) +
                    ", expects a multiple of 64");
}

/// Checks where a contributor rounds the terms that it sends, and that what it rounds is aligned.
bool Device::checkSends(const bundle::Instruction &instruction) {
  const auto &reduce = instruction.reduce_scatter();
  const bundle::Collective collective = *bundle::collectiveOf(instruction);
  const int64_t id = int64_t(instruction.id());
  if (collective.termType == reduce.type())
    return !reduce.send_buffer().bytes() ||
           report(Code::Size, id, where(instruction) + ": has memory for terms, and rounds none");
  const Held held = heldBy(program.device(), collective);
  const std::vector<Shard> runs = collective.runs();
  std::set<uint32_t> others;
  for (const Shard &shard : bundle::shardsOf(reduce.shards())) {
    if (shard.empty() || !held.whole.has(shard) || holdersOf(runs, shard).size() < 2)
      continue;
    if ((reduce.full().offset() + uint64_t(held.whole.place(shard) * elementSize(reduce.type()))) %
        uint64_t(kArgumentAlignment))
      return report(Code::Alignment, id,
                    where(instruction) + ": a term that it rounds starts on no multiple of 64");
    if (shard.device != program.device())
      others.insert(shard.device);
  }
  const bundle::Region &buffer = reduce.send_buffer();
  const int64_t bytes =
      product(int64_t(others.size()), padded(product(reduce.chunk(), elementSize(bundle::BF16))));
  if (int64_t(buffer.bytes()) != bytes)
    return report(Code::Size, id,
                  where(instruction) + ": the rounded terms that it sends have " +
                      std::to_string(buffer.bytes()) + " bytes, expects " + std::to_string(bytes));
  if (buffer.bytes() && buffer.offset() % uint64_t(kArgumentAlignment))
    return report(Code::Alignment, id,
                  where(instruction) + ": its rounded terms start on no multiple of 64");
  for (const bundle::Region *other : {&reduce.full(), &reduce.shard(), &reduce.receive_buffer()})
    if (overlap(buffer, *other))
      return report(Code::Alias, id,
                    where(instruction) + ": it rounds terms into memory that it reads or writes");
  return true;
}

bool Device::checkDirectAllReduce(const bundle::Instruction &instruction) {
  const int64_t id = int64_t(instruction.id());
  const auto &reduce = instruction.all_reduce();
  if (!contains(reduce.members(), program.device()) ||
      !checkRegion(reduce.receive_buffer(), &instruction, "parts", /*mayBeAbsent=*/true) ||
      !checkOnDevice(instruction, reduce.region()) ||
      !checkOnDevice(instruction, reduce.receive_buffer()))
    return false;
  if (overlap(reduce.receive_buffer(), reduce.region()))
    return report(Code::Alias, id,
                  where(instruction) + ": its terms arrive in memory that it reads and writes");
  return checkSumAlignment(instruction, reduce.region().offset()) &&
         checkParts(instruction, reduce.receive_buffer(), reduce.type(), reduce.members_size(),
                    int64_t(reduce.region().bytes()));
}

/// Must follow the checks that apply to every transfer and collective.
bool Device::checkDirect(int index) {
  const bundle::Instruction &instruction = program.instructions(index);
  if (!checkDirectMembers(instruction))
    return false;
  auto onDevice = [&](const bundle::Region &region) { return checkOnDevice(instruction, region); };
  switch (instruction.what_case()) {
  case bundle::Instruction::kSend:
    return onDevice(instruction.send().region());
  case bundle::Instruction::kReceive:
    return onDevice(instruction.receive().region());
  case bundle::Instruction::kAllGather:
    return onDevice(instruction.all_gather().full()) && onDevice(instruction.all_gather().shard());
  case bundle::Instruction::kReduceScatter:
    return checkDirectReduceScatter(instruction);
  case bundle::Instruction::kAllReduce:
    return checkDirectAllReduce(instruction);
  default:
    return true;
  }
}
