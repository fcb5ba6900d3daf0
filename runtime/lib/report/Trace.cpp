// Writes traces in Chrome's format
// (https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU), which Perfetto
// reads.
#include "zorse/runtime/Report.h"

#include "zorse/runtime/Buffers.h"
#include "zorse/runtime/OutputFile.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>
#include <vector>

using namespace zorse;
using namespace zorse::runtime;
using nlohmann::ordered_json;

namespace {

const char *queueName(bundle::QueueKind kind) {
  switch (kind) {
  case bundle::COMPUTE:
    return "compute";
  case bundle::SEND_QUEUE:
    return "send";
  case bundle::RECEIVE_QUEUE:
    return "receive";
  case bundle::COLLECTIVE_QUEUE:
    return "collective";
  case bundle::HOST_TO_DEVICE:
    return "host to device";
  case bundle::DEVICE_TO_HOST:
    return "device to host";
  case bundle::IO:
    return "I/O";
  case bundle::DEVICE_TO_DEVICE:
    return "GPU to GPU";
  default:
    return "queue";
  }
}

/// Names of a device's queues, by index: "send", "collective 1".
std::vector<std::string> queueNames(const bundle::Program &program) {
  std::vector<std::string> names;
  for (const bundle::Queue &queue : program.queues())
    names.push_back(queueName(queue.kind()) +
                    (queue.id() > 0 ? " " + std::to_string(queue.id()) : std::string()));
  return names;
}

double microseconds(double seconds) { return std::round(seconds * 1e9) / 1e3; }

/// Number of bytes that at least one range covers. Ranges can be added and removed.
class CoveredBytes {
public:
  explicit CoveredBytes(const std::vector<Buffer> &buffers, uint32_t arena) {
    for (const Buffer &b : buffers)
      if (b.arena == arena)
        bounds_.insert(bounds_.end(), {b.offset, b.offset + b.bytes});
    std::sort(bounds_.begin(), bounds_.end());
    bounds_.erase(std::unique(bounds_.begin(), bounds_.end()), bounds_.end());
    nodes_.resize(bounds_.empty() ? 0 : 4 * bounds_.size());
  }
  void add(const Buffer &b, int by) {
    auto index = [&](uint64_t bound) {
      return size_t(std::lower_bound(bounds_.begin(), bounds_.end(), bound) - bounds_.begin());
    };
    change(1, 0, bounds_.size() - 1, index(b.offset), index(b.offset + b.bytes), by);
  }
  uint64_t bytes() const { return nodes_.empty() ? 0 : nodes_[1].covered; }

private:
  struct Node {
    int times = 0; ///< number of ranges that cover the whole node but not its parent
    uint64_t covered = 0;
  };
  void change(size_t node, size_t begin, size_t end, size_t from, size_t to, int by) {
    if (to <= begin || end <= from)
      return;
    if (from <= begin && end <= to) {
      nodes_[node].times += by;
    } else {
      size_t middle = (begin + end) / 2;
      change(2 * node, begin, middle, from, to, by);
      change(2 * node + 1, middle, end, from, to, by);
    }
    nodes_[node].covered = nodes_[node].times > 0 ? bounds_[end] - bounds_[begin]
                           : end - begin == 1
                               ? 0
                               : nodes_[2 * node].covered + nodes_[2 * node + 1].covered;
  }

  std::vector<uint64_t> bounds_;
  std::vector<Node> nodes_; ///< segment tree over the elementary ranges between bounds
};

class TraceWriter {
public:
  TraceWriter(const Bundle &bundle, const std::vector<TraceEvent> &events)
      : bundle_(bundle), events_(events) {}

  std::string write() {
    text_ = "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n";
    for (uint32_t device = 0; device < bundle_.programs.size(); ++device)
      names(device);
    for (const TraceEvent &event : events_)
      slice(event);
    arrows();
    std::map<std::pair<uint32_t, uint64_t>, std::vector<const TraceEvent *>> steps; // by device and
                                                                                    // step
    for (const TraceEvent &event : events_)
      steps[{event.device, event.step}].push_back(&event);
    for (const auto &[key, ran] : steps) {
      memory(key.first, ran);
      depths(key.first, ran);
    }
    text_ += "{\"ph\": \"M\", \"name\": \"process_labels\", \"pid\": 0, \"args\": {\"labels\": "
             "\"zorse\"}}\n]}\n";
    return std::move(text_);
  }

private:
  void add(const ordered_json &event) { text_ += event.dump() + ",\n"; }

  const bundle::Instruction &instructionOf(const TraceEvent &event) const {
    return bundle_.programs[event.device].instructions(int(event.instruction));
  }

  void names(uint32_t device) {
    add({{"ph", "M"},
         {"name", "process_name"},
         {"pid", device},
         {"args", {{"name", "device " + bundle_.devices[device].name}}}});
    std::vector<std::string> queues = queueNames(bundle_.programs[device]);
    for (size_t q = 0; q < queues.size(); ++q) {
      add({{"ph", "M"},
           {"name", "thread_name"},
           {"pid", device},
           {"tid", q},
           {"args", {{"name", queues[q]}}}});
      add({{"ph", "M"},
           {"name", "thread_sort_index"},
           {"pid", device},
           {"tid", q},
           {"args", {{"sort_index", q}}}});
    }
  }

  void slice(const TraceEvent &event) {
    const bundle::Instruction &instruction = instructionOf(event);
    add({{"ph", "X"},
         {"name", describeInstruction(bundle_, event.device, instruction)},
         {"cat", bundle::Phase_Name(instruction.phase())},
         {"pid", event.device},
         {"tid", instruction.queue()},
         {"ts", microseconds(event.begin)},
         {"dur", microseconds(event.end - event.begin)},
         {"args",
          {{"step", event.step + 1},
           {"entry", instruction.id()},
           {"planned_us", (instruction.planned_end() - instruction.planned_start()) * 1e6}}}});
  }

  /// Draws an arrow from every send to its receive; both have the same instruction id.
  void arrows() {
    std::map<std::tuple<uint64_t, uint32_t, uint32_t>, const TraceEvent *> sends; // by step, id and
                                                                                  // receiver
    for (const TraceEvent &event : events_)
      if (instructionOf(event).has_send())
        sends[{event.step, instructionOf(event).id(), instructionOf(event).send().peer()}] = &event;
    uint64_t id = 0;
    for (const TraceEvent &event : events_) {
      const bundle::Instruction &instruction = instructionOf(event);
      auto send = instruction.has_receive()
                      ? sends.find({event.step, instruction.id(), event.device})
                      : sends.end();
      if (send == sends.end() || send->second->device != instruction.receive().peer())
        continue;
      auto end = [&](const char *phase, const TraceEvent &at, double when) {
        ordered_json json = {{"ph", phase}, {"name", "transfer"}, {"cat", "transfer"}, {"id", id}};
        if (*phase == 'f')
          json["bp"] = "e"; // "e": binds to the enclosing slice
        json.update(
            {{"pid", at.device}, {"tid", instructionOf(at).queue()}, {"ts", microseconds(when)}});
        add(json);
      };
      const double begins = send->second->begin;
      end("s", *send->second, begins);
      end("f", event, std::min(std::max(event.begin, begins), event.end)); // clocks of ranks differ
                                                                           // slightly
      ++id;
    }
  }

  struct Change {
    double at;
    int by;
    size_t what;
  };
  static void sort(std::vector<Change> &changes) {
    // Ends come before begins at the same time.
    std::stable_sort(changes.begin(), changes.end(), [](const Change &a, const Change &b) {
      return std::tie(a.at, a.by) < std::tie(b.at, b.by);
    });
  }

  /// Counts the bytes in use of a device's arenas over time. `ran`: the instructions of a step,
  /// indexed by position.
  void memory(uint32_t device, const std::vector<const TraceEvent *> &ran) {
    const bundle::Program &program = bundle_.programs[device];
    std::vector<const TraceEvent *> at(program.instructions_size());
    for (const TraceEvent *event : ran)
      at[event->instruction] = event;
    const std::vector<Buffer> &buffers = buffersOf(device);
    std::vector<CoveredBytes> arenas;
    for (uint32_t a = 0; a < uint32_t(program.arenas_size()); ++a)
      arenas.emplace_back(buffers, a);
    std::vector<Change> changes;
    for (size_t b = 0; b < buffers.size(); ++b) {
      // Instructions of other queues may have run in another order than the list's. The buffer is
      // in use from the first that began to the last that ended.
      const TraceEvent *first = at[buffers[b].first], *last = at[buffers[b].last];
      if (buffers[b].first == 0 && buffers[b].last == program.instructions_size() - 1) {
        arenas[buffers[b].arena].add(buffers[b], 1); // state
      } else if (first && last) {
        changes.push_back({first->begin, 1, b});
        changes.push_back({std::max(last->end, first->end), -1, b});
      }
    }
    sort(changes);
    for (size_t i = 0; i < changes.size(); ++i) {
      arenas[buffers[changes[i].what].arena].add(buffers[changes[i].what], changes[i].by);
      if (i + 1 < changes.size() && changes[i + 1].at == changes[i].at)
        continue;
      ordered_json bytes = ordered_json::object();
      for (size_t a = 0; a < arenas.size(); ++a)
        bytes["arena " + std::to_string(a)] = arenas[a].bytes();
      add({{"ph", "C"},
           {"name", "memory in use (bytes)"},
           {"pid", device},
           {"ts", microseconds(changes[i].at)},
           {"args", bytes}});
    }
  }

  /// Counts, for every queue, the instructions that are ready (all their waits are satisfied) but
  /// not finished.
  void depths(uint32_t device, const std::vector<const TraceEvent *> &ran) {
    const bundle::Program &program = bundle_.programs[device];
    std::vector<std::vector<const TraceEvent *>> queues(program.queues_size()); // instructions by
                                                                                // position
    double begin = ran.front()->begin;
    for (const TraceEvent *event : ran)
      begin = std::min(begin, event->begin);
    std::vector<const TraceEvent *> at(program.instructions_size());
    for (const TraceEvent *event : ran)
      at[event->instruction] = event;
    for (int e = 0; e < program.instructions_size(); ++e)
      queues[program.instructions(e).queue()].push_back(at[e]);
    std::vector<Change> changes;
    for (const TraceEvent *event : ran) {
      double ready = begin;
      for (const bundle::Wait &wait : program.instructions(int(event->instruction)).waits())
        if (!wait.previous_step())
          if (const TraceEvent *before = queues[wait.queue()][wait.position()])
            ready = std::max(ready, before->end);
      size_t queue = program.instructions(int(event->instruction)).queue();
      changes.push_back({std::min(ready, event->begin), 1, queue});
      changes.push_back({event->end, -1, queue});
    }
    sort(changes);
    std::vector<std::string> names = queueNames(program);
    std::vector<int64_t> depth(names.size());
    for (size_t i = 0; i < changes.size(); ++i) {
      depth[changes[i].what] += changes[i].by;
      if (i + 1 < changes.size() && changes[i + 1].at == changes[i].at)
        continue;
      ordered_json counts = ordered_json::object();
      for (size_t q = 0; q < names.size(); ++q)
        counts[names[q]] = std::max<int64_t>(depth[q], 0);
      add({{"ph", "C"},
           {"name", "instructions that could run"},
           {"pid", device},
           {"ts", microseconds(changes[i].at)},
           {"args", counts}});
    }
  }

  const std::vector<Buffer> &buffersOf(uint32_t device) {
    auto [found, added] = buffers_.try_emplace(device);
    if (added)
      found->second = findBuffers(bundle_.programs[device]);
    return found->second;
  }

  const Bundle &bundle_;
  const std::vector<TraceEvent> &events_; ///< sorted by begin
  std::map<uint32_t, std::vector<Buffer>> buffers_;
  std::string text_;
};

} // namespace

Status zorse::runtime::writeTrace(const std::string &path, const Bundle &bundle,
                                  std::vector<TraceEvent> events) {
  std::sort(events.begin(), events.end(),
            [](const TraceEvent &a, const TraceEvent &b) { return a.begin < b.begin; });
  return writeOutput(path, TraceWriter(bundle, events).write());
}
