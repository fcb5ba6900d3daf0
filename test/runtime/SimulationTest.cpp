// Tests simulated programs against times computed by hand.
#include "zorse/runtime/Simulation.h"

#include <gtest/gtest.h>

#include <map>

using namespace zorse;
using namespace zorse::runtime;
using bundle::Compute;
using bundle::Instruction;

namespace {

enum Queue : uint32_t { ComputeQueue, SendQueue, ReceiveQueue, Collectives, ToDevice };

/// Builds programs instruction by instruction, in global order. Waits name instructions by their
/// ids.
class Programs {
public:
  explicit Programs(const std::vector<std::string> &names, const char *kind = "cpu") {
    b.model = "by hand";
    b.batch = 4;
    for (const std::string &name : names) {
      b.devices.push_back({name, kind, 1, 0});
      bundle::Program p;
      p.set_device(uint32_t(b.programs.size()));
      p.set_device_name(name);
      for (bundle::QueueKind queue : {bundle::COMPUTE, bundle::SEND_QUEUE, bundle::RECEIVE_QUEUE,
                                      bundle::COLLECTIVE_QUEUE, bundle::HOST_TO_DEVICE})
        p.add_queues()->set_kind(queue);
      b.programs.push_back(p);
    }
  }

  uint32_t compute(uint32_t device, Compute::Task task, double seconds,
                   const std::vector<uint32_t> &after = {},
                   const std::vector<uint32_t> &afterPrevious = {}) {
    bundle::Phase phase = task == Compute::F                         ? bundle::FORWARD
                          : task == Compute::B || task == Compute::W ? bundle::BACKWARD
                                                                     : bundle::UPDATE_STATE;
    half(device, next, ComputeQueue, phase, seconds, after, afterPrevious)
        .mutable_compute()
        ->set_task(task);
    return next++;
  }

  uint32_t transfer(uint32_t from, uint32_t to, double seconds, uint64_t bytes,
                    const std::vector<uint32_t> &after = {}, bundle::Phase phase = bundle::FORWARD,
                    const std::vector<uint32_t> &afterThere = {}) {
    bundle::Send &send = *half(from, next, SendQueue, phase, seconds, after).mutable_send();
    send.set_peer(to);
    send.mutable_region()->set_bytes(bytes);
    bundle::Receive &receive =
        *half(to, next, ReceiveQueue, phase, seconds, afterThere).mutable_receive();
    receive.set_peer(from);
    receive.mutable_region()->set_bytes(bytes);
    return next++;
  }

  /// A sum over all devices.
  uint32_t sum(double seconds, const std::vector<std::vector<uint32_t>> &after) {
    for (uint32_t d = 0; d < b.programs.size(); ++d) {
      bundle::AllReduce &sum =
          *half(d, next, Collectives, bundle::READ_METRICS, seconds, after[d]).mutable_all_reduce();
      for (uint32_t member = 0; member < b.programs.size(); ++member)
        sum.add_members(member);
      sum.mutable_region()->set_bytes(128);
    }
    return next++;
  }

  /// All devices in one node with a bus of bandwidth `bus`; each device has its own port of
  /// bandwidth `bandwidth`.
  void topology(double bandwidth, double latency, double bus = 0) {
    b.topology.add_sites();
    auto *node = b.topology.add_nodes();
    node->mutable_port()->set_bandwidth(bandwidth);
    node->mutable_port()->set_latency(latency);
    node->mutable_bus()->set_bandwidth(bus);
    for (size_t d = 0; d < b.devices.size(); ++d)
      b.topology.add_node_of_device(0);
  }

  Simulation run(SimulationOptions options = {}) {
    Result<Simulation> result = simulatePrograms(b, options);
    EXPECT_FALSE(result.failed()) << result.message();
    return result.failed() ? Simulation() : *result;
  }

  Bundle b;
  uint32_t next = 0;

private:
  struct Place {
    uint32_t queue, position;
  };

  Instruction &half(uint32_t device, uint32_t id, uint32_t queue, bundle::Phase phase,
                    double seconds, const std::vector<uint32_t> &after,
                    const std::vector<uint32_t> &afterPrevious = {}) {
    Instruction &instruction = *b.programs[device].add_instructions();
    instruction.set_id(id);
    instruction.set_queue(queue);
    instruction.set_phase(phase);
    instruction.set_planned_end(seconds);
    auto waitFor = [&](uint32_t other, bool previous) {
      auto it = places.find({device, other});
      bundle::Wait &wait = *instruction.add_waits();
      // Only a wait for the step before can name a later instruction. Its queue is then the compute
      // queue and its position 0.
      wait.set_queue(it != places.end() ? it->second.queue : uint32_t(ComputeQueue));
      wait.set_position(it != places.end() ? it->second.position : 0);
      wait.set_previous_step(previous);
    };
    for (uint32_t other : after)
      waitFor(other, false);
    for (uint32_t other : afterPrevious)
      waitFor(other, true);
    places[{device, id}] = {queue, lengths[{device, queue}]++};
    return instruction;
  }

  std::map<std::pair<uint32_t, uint32_t>, Place> places;
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> lengths;
};

double of(const Seconds &seconds, Activity activity) { return seconds[size_t(activity)]; }

/// The only communication thread of b first waits for c. The transfer from a need not wait, because
/// its memory is free.
TEST(Simulation, AnnouncedReceivesBeginWithTheSender) {
  for (bool announces : {true, false}) {
    Programs p({"a", "b", "c"});
    p.topology(1, 0);
    uint32_t slow = p.compute(2, Compute::F, 10), quick = p.compute(0, Compute::F, 1);
    uint32_t busy = p.compute(1, Compute::F, 2);
    p.transfer(2, 1, 1, 1, {slow});
    uint32_t early = p.transfer(0, 1, 1, 1, {quick}, bundle::FORWARD, {});
    uint32_t on = p.transfer(0, 2, 1, 1, {quick});
    (void)busy, (void)early, (void)on;
    for (BundleDevice &device : p.b.devices)
      device.kind = announces ? "cpu" : "sim";
    for (auto &program : p.b.programs) // receives into separate memory
      for (auto &instruction : *program.mutable_instructions())
        if (instruction.has_receive())
          instruction.mutable_receive()->mutable_region()->set_offset(instruction.id());
    SimulationOptions options;
    options.steps = 1;
    options.traceSteps = 1;
    Simulation s = p.run(options);
    // The sender is free at 2, so its second transfer starts then, not at 11, when b has received
    // from c.
    double begins = -1;
    for (const TraceEvent &event : s.trace)
      if (event.device == 0 && p.b.programs[0].instructions(int(event.instruction)).has_send() &&
          p.b.programs[0].instructions(int(event.instruction)).send().peer() == 2)
        begins = event.begin;
    EXPECT_DOUBLE_EQ(begins, announces ? 2 : 12);
    EXPECT_DOUBLE_EQ(s.stepEnds[0], announces ? 11 : 13);
  }
}

TEST(Simulation, OneDeviceAddsUp) {
  Programs p({"a"});
  uint32_t f = p.compute(0, Compute::F, 1);
  uint32_t b = p.compute(0, Compute::B, 2, {f});
  p.compute(0, Compute::UPDATE_GROUP, 0.5, {b});
  Simulation s = p.run();
  EXPECT_DOUBLE_EQ(s.firstStep, 3.5);
  EXPECT_DOUBLE_EQ(s.step, 3.5);
  EXPECT_DOUBLE_EQ(s.stepEnds.back(), 14);
  EXPECT_DOUBLE_EQ(s.devices[0].compute(), 3.5);
  EXPECT_DOUBLE_EQ(of(s.criticalPath, Activity::Forward), 1);
  EXPECT_DOUBLE_EQ(of(s.criticalPath, Activity::Backward), 2);
  EXPECT_DOUBLE_EQ(of(s.criticalPath, Activity::Update), 0.5);
}

/// a: F 1, send 0.5, ... B 2       b: F 2, B 1, send 0.5, update
Programs pipeline(double update) {
  Programs p({"a", "b"});
  uint32_t fa = p.compute(0, Compute::F, 1);
  uint32_t down = p.transfer(0, 1, 0.5, 1000, {fa});
  uint32_t fb = p.compute(1, Compute::F, 2, {down});
  uint32_t bb = p.compute(1, Compute::B, 1, {fb});
  uint32_t up = p.transfer(1, 0, 0.5, 1000, {bb}, bundle::BACKWARD);
  p.compute(0, Compute::B, 2, {up});
  p.compute(1, Compute::UPDATE_GROUP, update, {bb});
  return p;
}

TEST(Simulation, PipelineOfTwo) {
  Simulation s = pipeline(0.25).run();
  EXPECT_DOUBLE_EQ(s.firstStep, 7); // 1 + .5 + 2 + 1 + .5 + 2
  EXPECT_DOUBLE_EQ(s.step, 7);
  EXPECT_FALSE(s.usesTopology);
  EXPECT_DOUBLE_EQ(of(s.criticalPath, Activity::Forward), 3);
  EXPECT_DOUBLE_EQ(of(s.criticalPath, Activity::Transfer), 1);
  EXPECT_DOUBLE_EQ(of(s.criticalPath, Activity::Backward), 3);
  EXPECT_DOUBLE_EQ(of(s.devices[0].waiting, Activity::Transfer), 4); // from its F to its B
  EXPECT_DOUBLE_EQ(of(s.devices[1].waiting, Activity::Transfer),
                   7 - 3 - 0.25); // from its update to its F
}

TEST(Simulation, StepsOverlap) {
  // b's update of 6 ends at 1.5 + 3 + 6 = 10.5, a's B at 7. The next F of a runs at 7, that of b
  // at 10.5.
  Simulation s = pipeline(6).run();
  EXPECT_DOUBLE_EQ(s.firstStep, 10.5);
  EXPECT_DOUBLE_EQ(s.stepEnds[1], 19.5);
  EXPECT_DOUBLE_EQ(s.step, 9); // b never waits again
  EXPECT_DOUBLE_EQ(of(s.devices[1].waiting, Activity::Transfer), 0);
  EXPECT_DOUBLE_EQ(of(s.criticalPath, Activity::Update), 6);
  EXPECT_DOUBLE_EQ(of(s.criticalPath, Activity::Transfer), 0);
}

TEST(Simulation, StepsArePreparedOneAhead) {
  // Without transfers, a could run far ahead of b. On one device, step n + 2 waits for step n.
  Programs p({"a"}, "sim");
  p.compute(0, Compute::F, 1);
  Instruction &load = *p.b.programs[0].add_instructions();
  load.set_id(p.next++);
  load.set_queue(ToDevice);
  load.set_phase(bundle::LOAD);
  load.set_planned_end(0.125);
  load.mutable_load_scalars();
  SimulationOptions options;
  options.traceSteps = 4;
  Simulation s = p.run(options);
  double third = -1;
  for (const TraceEvent &event : s.trace)
    if (event.step == 2 && event.instruction == 1)
      third = event.begin;
  EXPECT_DOUBLE_EQ(third, 1); // the load of step 3 begins when step 1 ends
  EXPECT_DOUBLE_EQ(s.stepEnds.back(), 4);
}

TEST(Simulation, WaitsOfThePreviousStep) {
  Programs p({"a", "b"});
  uint32_t f = p.compute(0, Compute::F, 1);
  p.transfer(0, 1, 3, 1000, {f});
  // Position 0 of a's send queue: the transfer still reads the buffer that F writes.
  bundle::Wait &wait = *p.b.programs[0].mutable_instructions(0)->add_waits();
  wait.set_queue(SendQueue);
  wait.set_position(0);
  wait.set_previous_step(true);
  Simulation s = p.run();
  EXPECT_DOUBLE_EQ(s.firstStep, 4);
  EXPECT_DOUBLE_EQ(s.step, 4); // 3 without the wait
}

TEST(Simulation, LinksAreShared) {
  Programs p({"a", "b", "c", "d"});
  p.transfer(0, 1, 0, 1000000000);
  p.transfer(2, 3, 0, 1000000000);
  p.topology(1e9, 0.25);
  EXPECT_DOUBLE_EQ(p.run().firstStep, 1.25);
  p.b.topology.mutable_nodes(0)->mutable_bus()->set_bandwidth(1e9);
  Simulation s = p.run();
  EXPECT_TRUE(s.usesTopology);
  EXPECT_DOUBLE_EQ(s.firstStep, 2.25); // the second transfer runs after the first
  EXPECT_DOUBLE_EQ(of(s.criticalPath, Activity::BusyLink) + of(s.criticalPath, Activity::Transfer),
                   s.stepEnds[3] - s.stepEnds[2]);

  SimulationOptions faster;
  faster.linkTimes = 2;
  EXPECT_DOUBLE_EQ(p.run(faster).firstStep, 1.25);
}

TEST(Simulation, WhatIfDevicesWereFaster) {
  SimulationOptions options;
  options.speedTimes = {2, 0.5};
  EXPECT_DOUBLE_EQ(pipeline(0).run(options).firstStep, 0.5 + 0.5 + 6 + 0.5 + 1);
  options.speedTimes.clear();
  options.linkTimes = 0.5; // planned durations are scaled
  EXPECT_DOUBLE_EQ(pipeline(0).run(options).firstStep, 8);
}

TEST(Simulation, OneThreadCommunicates) {
  // a sends to b after its long F. The receive from c comes later in the list, although its data
  // could arrive earlier.
  Programs p({"a", "b", "c"});
  uint32_t f = p.compute(0, Compute::F, 4);
  p.transfer(0, 1, 1, 1000, {f});
  uint32_t early = p.transfer(2, 0, 1, 1000);
  p.compute(0, Compute::B, 1, {early});
  EXPECT_DOUBLE_EQ(p.run().firstStep, 6); // 4 + 1 + 1: the announced bytes from c have arrived, but
                                          // the receive comes after the send
  SimulationOptions options;
  options.oneThreadPerQueue = true;
  EXPECT_DOUBLE_EQ(p.run(options).firstStep, 5);
  for (BundleDevice &device : p.b.devices)
    device.kind = "sim"; // a queue is a stream there
  EXPECT_DOUBLE_EQ(p.run().firstStep, 5);
}

TEST(Simulation, CollectivesStartWhenAllAreThere) {
  Programs p({"a", "b"});
  uint32_t fa = p.compute(0, Compute::F, 1), fb = p.compute(1, Compute::F, 3);
  uint32_t all = p.sum(0.5, {{fa}, {fb}});
  p.compute(0, Compute::UPDATE_GROUP, 1, {all});
  Simulation s = p.run();
  EXPECT_DOUBLE_EQ(s.firstStep, 4.5);
  // a: F 1, waits for the sum 2.5, update 1. In the next step b begins at 3.5.
  EXPECT_DOUBLE_EQ(of(s.devices[0].waiting, Activity::Sum), s.step - 2);
}

TEST(Simulation, EvaluationSkipsWhatTrains) {
  Programs p = pipeline(5);
  SimulationOptions options;
  options.evaluation = true;
  Simulation s = p.run(options);
  EXPECT_DOUBLE_EQ(s.firstStep, 3.5); // F, transfer, F
  // b's next receive comes after the send of a gradient. Evaluation skips the send, but its wait
  // for b's F remains.
  EXPECT_DOUBLE_EQ(s.step, 2.5);
  options.oneThreadPerQueue = true;
  EXPECT_DOUBLE_EQ(p.run(options).step, 2); // b's F
}

TEST(Simulation, OneStep) {
  SimulationOptions options;
  options.steps = 1;
  Simulation s = pipeline(0).run(options);
  EXPECT_DOUBLE_EQ(s.step, 7);
  EXPECT_DOUBLE_EQ(s.devices[0].compute(), 3);
}

TEST(Simulation, NamesWhoWaitsForever) {
  // Each device first sends the data that the other one receives second. With one communication
  // thread, neither reaches the matching transfer.
  Programs p({"left", "right"});
  for (uint32_t device : {0u, 1u}) {
    Instruction &send = *p.b.programs[device].add_instructions();
    send.set_id(device);
    send.set_queue(SendQueue);
    send.set_phase(bundle::FORWARD);
    send.mutable_send()->set_peer(1 - device);
    Instruction &receive = *p.b.programs[device].add_instructions();
    receive.set_id(1 - device);
    receive.set_queue(ReceiveQueue);
    receive.set_phase(bundle::FORWARD);
    receive.mutable_receive()->set_peer(1 - device);
    receive.add_waits()->set_queue(SendQueue); // so that it cannot be announced earlier
  }
  Result<Simulation> result = simulatePrograms(p.b, {});
  ASSERT_TRUE(result.failed());
  for (const char *expected :
       {"device left", "device right", "send to right", "send to left", "cannot run"})
    EXPECT_NE(result.message().find(expected), std::string::npos) << result.message();

  // An instruction that waits for a later instruction.
  Programs q({"a"});
  q.compute(0, Compute::F, 1);
  q.compute(0, Compute::B, 1);
  bundle::Wait &wait = *q.b.programs[0].mutable_instructions(0)->add_waits();
  wait.set_queue(ComputeQueue);
  wait.set_position(1);
  result = simulatePrograms(q.b, {});
  ASSERT_TRUE(result.failed());
  EXPECT_NE(result.message().find("waits for instruction 1"), std::string::npos)
      << result.message();
}

TEST(Simulation, RefusesTimesThatAreNone) {
  Programs p = pipeline(0);
  p.b.programs[1].mutable_instructions(1)->set_planned_end(-1);
  EXPECT_TRUE(simulatePrograms(p.b, {}).failed());
}

} // namespace
