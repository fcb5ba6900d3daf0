// Tests devices that move bytes with their own CPUs: transfers delay their computations.
#include "Topologies.h"

#include <gtest/gtest.h>

using namespace zorse;

namespace {

sim::Network threeDevices() {
  bundle::Topology t;
  t.add_sites();
  t.add_nodes();
  for (double perByte : {0.5, 0.25, 0.0}) {
    t.add_node_of_device(0);
    t.add_cpu_communication_costs()->set_per_byte(perByte);
  }
  return sim::Network(t);
}

TEST(Work, BytesTakeTimeFromComputing) {
  sim::Network network = threeDevices();
  sim::Traffic traffic(network);
  EXPECT_DOUBLE_EQ(traffic.compute(0, 10, 0), 10);
  traffic.send(0, 1, 4, 3); // while 0 computes: costs 2 s on 0, and 1 s on the idle 1
  EXPECT_DOUBLE_EQ(traffic.compute(1, 1, 3.25), 5); // 0.25 s were done while idle
  EXPECT_DOUBLE_EQ(traffic.compute(0, 10, 10), 22);
  EXPECT_DOUBLE_EQ(traffic.compute(0, 1, 30), 31); // counted only once
}

TEST(Work, IdleDevicesWorkItOff) {
  sim::Network network = threeDevices();
  sim::Traffic traffic(network);
  traffic.send(0, 2, 4, 1);
  EXPECT_DOUBLE_EQ(traffic.compute(0, 1, 3), 4);
  traffic.send(0, 2, 4, 3.5); // during the computation: done from time 4
  traffic.send(0, 2, 4, 4.5);
  EXPECT_DOUBLE_EQ(traffic.compute(0, 1, 5),
                   8); // delayed by 2 - (5 - 4), and slowed to half speed by the current transfer
  EXPECT_DOUBLE_EQ(traffic.compute(2, 1, 5), 6);
}

TEST(Work, CollectivesCountWhatEachMoves) {
  sim::Network network = threeDevices();
  sim::Traffic traffic(network);
  // Three readers of pieces of 4 and 8 bytes: 0 sends 2 x 4 and receives 8; 1 sends 2 x 8 and
  // receives 4.
  traffic.allGather({{0, 4}, {1, 8}}, {0, 1, 2}, 0);
  EXPECT_DOUBLE_EQ(traffic.compute(0, 100, 0), 100 + 16 * 0.5);
  EXPECT_DOUBLE_EQ(traffic.compute(1, 100, 0), 100 + 20 * 0.25);
  traffic.reset();
  traffic.reduceScatter({0, 1, 2}, {{0, 4}, {1, 8}}, 0);
  traffic.reset();
  EXPECT_DOUBLE_EQ(traffic.compute(0, 1, 0), 1);
}

TEST(Work, MovingTakesAsLong) {
  sim::Network network = threeDevices();
  sim::Traffic traffic(network);
  EXPECT_DOUBLE_EQ(traffic.send(0, 1, 4, 1).arrived, 3); // 2 s on 0, the slower device
  EXPECT_DOUBLE_EQ(traffic.send(2, 0, 4, 2).arrived, 5); // both directions use the same CPU
  EXPECT_DOUBLE_EQ(traffic.send(1, 2, 4, 2).arrived, 3); // 1 is free from time 2
  EXPECT_DOUBLE_EQ(traffic.allGather({{0, 4}, {1, 8}}, {0, 1, 2}, 10).arrived, 10 + 16 * 0.5);
}

TEST(Work, DevicesThatComputeMoveLaterAndSlower) {
  bundle::Topology t;
  t.add_sites();
  t.add_nodes();
  for (int d = 0; d < 3; ++d) {
    t.add_node_of_device(0);
    auto *moving = t.add_cpu_communication_costs();
    moving->set_per_byte(0.5);
    moving->set_per_message(1);
    moving->set_delay(d == 1 ? 0.25 : 0);
  }
  sim::Network network(t);
  sim::Traffic traffic(network);
  traffic.compute(1, 10, 0);
  EXPECT_DOUBLE_EQ(traffic.send(0, 1, 2, 1).arrived, 1 + 0.25 + 2 * (1 + 2 * 0.5));
  EXPECT_DOUBLE_EQ(traffic.send(0, 2, 2, 5).arrived, 7);
  traffic.occupy(2, 20);
  EXPECT_DOUBLE_EQ(traffic.send(0, 2, 2, 10).arrived, 14);
  EXPECT_DOUBLE_EQ(traffic.compute(1, 1, 10), 13); // one message of 2 bytes
}

TEST(Work, NoneWithoutIt) {
  bundle::Topology t;
  t.add_sites();
  t.add_nodes();
  t.add_node_of_device(0);
  t.add_node_of_device(0);
  sim::Network network(t);
  sim::Traffic traffic(network);
  traffic.send(0, 1, 1e9, 0);
  EXPECT_DOUBLE_EQ(traffic.compute(0, 1, 0), 1);
}

} // namespace
