// Tests two ranks over a link with high latency: the benefit of announced receives and of several
// connections.
#include "DelayProxy.h"
#include "GlooTransports.h"
#include "Patience.h"

#include <algorithm>
#include <chrono>
#include <gtest/gtest.h>

using namespace zorse::runtime;
using namespace zorse::runtime::test;

namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// One-way latency in milliseconds; longer on a busy machine, which adds delays.
double delay() { return zorse::test::patience() > 1 ? 50 : 20; }

struct LongLink {
  std::vector<std::unique_ptr<zorse::test::DelayProxy>> proxies; ///< destroyed after the transports
  std::vector<std::unique_ptr<Transport>> transports;

  LongLink(double milliseconds, size_t window, uint32_t contexts) : proxies(2), transports(2) {
    TemporaryDirectory directory;
    std::vector<std::thread> threads;
    for (uint32_t rank = 0; rank < 2; ++rank)
      threads.emplace_back([&, rank] {
        zorse::test::FileGroup group(directory.path("."), rank, 2);
        zorse::test::ProxiedGroup far(group, milliseconds, window);
        GlooOptions options = glooOptions(rank, 2);
        options.dataConnections[1 - rank] = contexts;
        auto made = makeGlooTransport(far, options);
        proxies[rank] = far.takeProxy();
        if (!made.failed())
          transports[rank] = std::move(*made);
        else
          ADD_FAILURE() << made.message();
      });
    for (std::thread &thread : threads)
      thread.join();
  }
};

/// Seconds from the call of a send and its receive to the arrival: the minimum of several runs.
double arrival(LongLink &link, bool announced, uint32_t instruction) {
  std::vector<double> times;
  for (uint64_t step = 0; step < 9; ++step) {
    std::vector<std::byte> from(4096, std::byte(step)), to(4096);
    if (announced) {
      link.transports[1]->postReceive({instruction, step}, 0, to.data(), to.size());
      std::this_thread::sleep_for(std::chrono::milliseconds(int(2 * delay()))); // computes
    }
    double begin = now();
    std::thread sender([&] {
      EXPECT_FALSE(
          link.transports[0]->send({instruction, step}, 1, from.data(), from.size()).failed());
    });
    EXPECT_FALSE(
        link.transports[1]->receive({instruction, step}, 0, to.data(), to.size()).failed());
    times.push_back(now() - begin);
    sender.join();
    EXPECT_EQ(from, to);
  }
  return *std::min_element(times.begin(), times.end());
}

TEST(GlooLongLink, AnnouncedReceivesSaveARoundTrip) {
  LongLink link(delay(), 64 << 20, 1);
  double asked = arrival(link, false, 1), announced = arrival(link, true, 2);
  std::printf("4 KiB over a link of %.0f ms: %.1f ms, announced %.1f ms\n", delay(), asked * 1e3,
              announced * 1e3);
  EXPECT_GE(asked, 1.95e-3 * delay());
  EXPECT_LT(announced, 0.75 * asked);
}

TEST(GlooLongLink, SumsTakeTheTimeOfOneWay) {
  LongLink link(delay(), 64 << 20, 1);
  std::vector<double> times;
  for (uint64_t step = 0; step < 9; ++step) {
    double values[2] = {1, 2}, begin = now();
    auto sum = [&](uint32_t rank) {
      AllReduceArguments a;
      a.members = {0, 1};
      a.data = &values[rank];
      a.count = 1;
      EXPECT_FALSE(link.transports[rank]->allReduce({1, 3 * step}, a).failed());
    };
    std::thread other([&] { sum(1); });
    sum(0);
    other.join();
    times.push_back(now() - begin);
    EXPECT_EQ(values[0] + values[1], 6);
    std::this_thread::sleep_for(std::chrono::milliseconds(int(1.25 * delay()))); // computes
  }
  double min = *std::min_element(times.begin(), times.end());
  std::printf("all-reduce over a link of %.0f ms: %.1f ms\n", delay(), min * 1e3);
  EXPECT_LT(min, 1.75e-3 * delay());
}

TEST(GlooLongLink, SeveralConnectionsFillALongLink) {
  std::vector<std::byte> from(2 << 20, std::byte(5)), to(2 << 20);
  double seconds[2];
  for (int several : {0, 1}) {
    LongLink link(delay(), 128 << 10, several ? 4 : 1);
    double begin = now();
    std::thread sender([&] {
      EXPECT_FALSE(link.transports[0]->send({1, 0}, 1, from.data(), from.size()).failed());
    });
    EXPECT_FALSE(link.transports[1]->receive({1, 0}, 0, to.data(), to.size()).failed());
    seconds[several] = now() - begin;
    sender.join();
    EXPECT_EQ(from, to);
  }
  std::printf(
      "2 MiB over a link of %.0f ms and windows of 128 KiB: %.0f ms, with 4 connections %.0f ms\n",
      delay(), seconds[0] * 1e3, seconds[1] * 1e3);
  EXPECT_LT(seconds[1], 0.6 * seconds[0]);
}

} // namespace
