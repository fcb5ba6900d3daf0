#include "GlooTransports.h"
#include "TransportConformance.h"

#include "zorse/runtime/DelayedTransport.h"

using namespace zorse::runtime;
using namespace zorse::runtime::test;

namespace {

std::vector<std::unique_ptr<Transport>>
delayed(std::vector<std::unique_ptr<Transport>> transports) {
  for (size_t i = 0; i < transports.size(); ++i)
    transports[i] = makeDelayedTransport(std::move(transports[i]), 7 + i, 3);
  return transports;
}

std::vector<std::unique_ptr<Transport>> plain(uint32_t devices) {
  return makeGlooTransports(devices);
}

/// 3 contexts for every link.
std::vector<std::unique_ptr<Transport>> striped(uint32_t devices) {
  return makeGlooTransports(devices, [&](uint32_t rank, GlooOptions &options) {
    if (rank == 0) // a request by one end is enough
      for (uint32_t peer = 1; peer < devices; ++peer)
        options.dataConnections[peer] = 3;
  });
}

/// Two sites by parity of the rank. For an odd number of ranks: two ranks per site.
std::vector<std::unique_ptr<Transport>> sites(uint32_t devices) {
  return makeGlooTransports(devices, [&](uint32_t, GlooOptions &options) {
    for (uint32_t rank = 0; rank < devices; ++rank)
      options.nodes.push_back(devices % 2 == 0 ? rank % 2 : rank / 2);
  });
}

std::vector<std::unique_ptr<Transport>> delayedGloo(uint32_t devices) {
  return delayed(makeGlooTransports(devices));
}
std::vector<std::unique_ptr<Transport>> delayedLocal(uint32_t devices) {
  return delayed(makeLocalTransports(devices));
}

} // namespace

INSTANTIATE_TEST_SUITE_P(Gloo, TransportConformance, ::testing::Values(&plain));
INSTANTIATE_TEST_SUITE_P(GlooStriped, TransportConformance, ::testing::Values(&striped));
INSTANTIATE_TEST_SUITE_P(GlooSites, TransportConformance, ::testing::Values(&sites));
INSTANTIATE_TEST_SUITE_P(GlooDelayed, TransportConformance, ::testing::Values(&delayedGloo));
INSTANTIATE_TEST_SUITE_P(LocalDelayed, TransportConformance, ::testing::Values(&delayedLocal));

namespace {

TEST(GlooTransport, MovedGrowsWithinALongTransfer) {
  // Measured at the receiver, from another thread.
  constexpr size_t kBytes = 64 << 20;
  std::vector<std::byte> from(kBytes, std::byte(3)), to(kBytes);
  auto transports = makeGlooTransports(2);
  std::atomic<bool> over{false};
  std::thread sender(
      [&] { EXPECT_FALSE(transports[0]->send({1, 0}, 1, from.data(), kBytes).failed()); });
  std::thread receiver([&] {
    EXPECT_FALSE(transports[1]->receive({1, 0}, 0, to.data(), kBytes).failed());
    over = true;
  });
  std::vector<uint64_t> seen{0};
  while (!over) {
    if (uint64_t moved = transports[1]->moved(); moved != seen.back())
      seen.push_back(moved);
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  sender.join();
  receiver.join();
  EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
  EXPECT_GE(seen.size(), 4u);
  EXPECT_EQ(from, to);
}

TEST(GlooTransport, ManyRanksMeetAndSum) {
  constexpr uint32_t kRanks = 20;
  auto transports = makeGlooTransports(kRanks);
  ASSERT_EQ(transports.size(), kRanks);
  std::vector<double> values(kRanks);
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < kRanks; ++rank)
    threads.emplace_back([&, rank] {
      values[rank] = rank;
      AllReduceArguments a;
      for (uint32_t member = 0; member < kRanks; ++member)
        a.members.push_back(member);
      a.data = &values[rank];
      a.count = 1;
      EXPECT_FALSE(transports[rank]->allReduce({1, 0}, a).failed());
      transports[rank].reset();
    });
  for (std::thread &thread : threads)
    thread.join();
  EXPECT_EQ(values, std::vector<double>(kRanks, kRanks * (kRanks - 1) / 2));
}

} // namespace
