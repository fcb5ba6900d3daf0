#include "Machine.h"

#include "ArgumentBindings.h"

#include <algorithm>

using namespace zorse;
using namespace zorse::interpret;

void Machine::startCall(const Half &half, Active &work) {
  const auto &compute = half.instruction->compute();
  auto &queue = queues[half.program][half.queue];
  if (compute.calls_size() == 0)
    return;
  const auto &call = compute.calls(queue.call);
  work.lastCall = queue.call + 1 == compute.calls_size();
  if (call.function() >= uint32_t(functions.functions_size()) || call.rows() < 1 ||
      call.rows() > (1 << 20))
    invalid("impossible call");
  const auto &function = functions.functions(int(call.function()));
  const bundle::ArgumentBindings bindings(programs[half.program], call);
  if (bindings.size() != function.arguments_size())
    invalid("arguments do not fit the function");
  Role role = roleOf(summary, call.function());
  std::vector<Words> arguments;
  std::vector<bool> overwrite;
  std::vector<Span> places;
  std::vector<Span> touched;
  for (int s = 0; s < function.arguments_size(); ++s) {
    const auto &argument = function.arguments(s);
    const auto &region = bindings[s].region;
    int64_t bytes = argumentBytes(argument, call.rows());
    if (bytes < 0)
      invalid("impossible argument");
    bool writes = argument.mode() != bundle::READ || argument.kind() == bundle::WORKSPACE;
    Span where = span(half.program, region, 0, bytes, writes);
    places.push_back(where);
    // Scalars and sums share a block; calls access only their part of it.
    auto touch = [&](int64_t from, int64_t to, bool write) {
      Span part = where;
      part.begin = std::min(where.end, where.begin + from);
      part.end = std::min(where.end, where.begin + to);
      part.write = write;
      if (part.begin < part.end)
        touched.push_back(part);
    };
    if (argument.kind() == bundle::SCALARS) {
      touch(0, 64, false);
      if (role == Role::Update || role == Role::Decide)
        touch(64, 128, writes);
      touch(128, kScalarWords * 4, role == Role::ScaleSeeds);
    } else if (argument.kind() == bundle::LOCAL_METRICS && role == Role::Norm) {
      touch(0, 16, true);
    } else if (argument.kind() == bundle::LOCAL_METRICS && role == Role::SumLoss) {
      touch(16, 128, true);
    } else {
      touch(0, bytes, writes);
    }
    Words words = fetch(where);
    if (argument.mode() == bundle::WRITE || argument.kind() == bundle::WORKSPACE)
      for (uint64_t &word : words)
        word = poison();
    arguments.push_back(std::move(words));
    overwrite.push_back(bindings[s].overwrite || argument.mode() == bundle::WRITE);
  }
  for (size_t a = 0; a < touched.size(); ++a)
    for (size_t b = a + 1; b < touched.size(); ++b)
      if (touched[a].conflicts(touched[b]))
        throw Stop{Outcome::Race, "arguments of a call of instruction " +
                                      std::to_string(work.instruction) + " overlap"};
  execute(summary, functions, call.function(), call.rows(), call.sample_base(), call.rng_id_base(),
          arguments, overwrite);
  for (const Span &part : touched)
    if (part.write)
      for (size_t s = 0; s < places.size(); ++s)
        if (places[s].write && places[s].arena == part.arena && places[s].begin <= part.begin &&
            part.end <= places[s].end) {
          Words words(arguments[s].begin() + (part.begin - places[s].begin) / 4,
                      arguments[s].begin() + (part.end - places[s].begin) / 4);
          if (function.arguments(int(s)).kind() == bundle::WORKSPACE)
            for (uint64_t &word : words)
              word = poison();
          work.writes.push_back({part, std::move(words)});
          break;
        }
  work.spans = std::move(touched);
}

void Machine::startLocal(const Half &half, Active &work, size_t step) {
  const bundle::Instruction &instruction = *half.instruction;
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
  if (instruction.has_copy()) {
    Words words = read(instruction.copy().from());
    write(instruction.copy().to(), std::move(words));
    if (work.spans[0].conflicts(work.spans[1]) ||
        instruction.copy().from().bytes() != instruction.copy().to().bytes())
      invalid("copy onto itself, or of unequal sizes");
  } else if (instruction.has_load_input()) {
    const auto &load = instruction.load_input();
    if (load.input() >= uint32_t(summary.inputs_size()) || load.rows() < 0 ||
        load.rows() > (1 << 20))
      invalid("impossible load");
    size_t perRow = size_t(summary.inputs(int(load.input())).bytes_per_row()) / 4;
    if (load.region().bytes() != uint64_t(load.rows()) * perRow * 4)
      invalid("load of the wrong size");
    Words words;
    for (int64_t r = 0; r < load.rows(); ++r)
      for (size_t w = 0; w < perRow; ++w)
        words.push_back(inputWord(load.input(), load.sample_base() + r, w, int(step)));
    write(load.region(), std::move(words));
  } else if (instruction.has_load_scalars()) {
    if (instruction.load_scalars().region().bytes() != kBlockWords * 4)
      invalid("scalars of the wrong size");
    Words words(kBlockWords, 0);
    for (size_t w = 0; w < kScalarWords; ++w)
      words[w] = scalarWord(w, int(step));
    write(instruction.load_scalars().region(), std::move(words));
  } else if (instruction.has_read_metrics()) {
    if (instruction.read_metrics().region().bytes() != kBlockWords * 4)
      invalid("report of the wrong size");
    Words block = read(instruction.read_metrics().region());
    Words report;
    if (!evaluates(step))
      report.assign(block.begin() + kDecidedBegin, block.begin() + kDecidedEnd);
    report.insert(report.end(), block.begin() + kScalarWords + kNormWords,
                  block.begin() + kScalarWords + kNormWords + 2 * summary.loss_size());
    reports[step].insert(reports[step].end(), report.begin(), report.end());
  } else {
    invalid("an instruction that is nothing");
  }
}

void Machine::startTransfer(const std::vector<Half> &halves, Active &work) {
  const Half *send = nullptr, *receive = nullptr;
  for (const Half &half : halves)
    (half.instruction->has_send() ? send : receive) = &half;
  if (halves.size() != 2 || !send || !receive || !receive->instruction->has_receive())
    invalid("a transfer without both halves");
  const bundle::Send &from = send->instruction->send();
  const bundle::Receive &to = receive->instruction->receive();
  if (from.peer() != programs[receive->program].device() ||
      to.peer() != programs[send->program].device() || from.region().bytes() != to.region().bytes())
    invalid("halves of a transfer that do not fit");
  Span source = span(send->program, from.region(), 0, int64_t(from.region().bytes()), false);
  Span target = span(receive->program, to.region(), 0, int64_t(to.region().bytes()), true);
  work.spans = {source, target};
  work.writes.push_back({target, fetch(source)});
}
