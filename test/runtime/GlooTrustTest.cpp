// Tests that only ranks that prove the job's secret are admitted, whatever other peers send.
#include "GlooTransports.h"

#include <algorithm>
#include <arpa/inet.h>
#include <atomic>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <random>
#include <sstream>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

using namespace zorse::runtime;
using namespace zorse::runtime::test;

namespace {

/// Ports on which this process listens.
std::vector<uint16_t> listeningPorts() {
  std::vector<std::string> mine;
  for (const auto &entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    mine.push_back(std::filesystem::read_symlink(entry.path(), error).string());
  }
  std::vector<uint16_t> ports;
  std::ifstream table("/proc/self/net/tcp");
  std::string line;
  std::getline(table, line);
  while (std::getline(table, line)) {
    std::istringstream words(line);
    std::string argument, local, remote, state, queues, timer, retransmits, user, timeout, inode;
    words >> argument >> local >> remote >> state >> queues >> timer >> retransmits >> user >>
        timeout >> inode;
    if (state == "0A" &&
        std::find(mine.begin(), mine.end(), "socket:[" + inode + "]") != mine.end())
      ports.push_back(uint16_t(std::stoul(local.substr(local.find(':') + 1), nullptr, 16)));
  }
  return ports;
}

/// Connects as an unauthenticated peer; -1 if refused.
int connectTo(uint16_t port) {
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(fd, reinterpret_cast<sockaddr *>(&address), sizeof address) == 0)
    return fd;
  close(fd);
  return -1;
}

size_t residentBytes() {
  std::ifstream file("/proc/self/statm");
  size_t total = 0, resident = 0;
  file >> total >> resident;
  return resident * size_t(sysconf(_SC_PAGESIZE));
}

/// Input of unauthenticated peers: noise, Gloo preambles of every kind, and almost valid hellos.
std::string junk(std::mt19937_64 &random) {
  auto number = [](uint64_t value, int bytes) {
    std::string text;
    for (int i = 0; i < bytes; ++i)
      text += char(value >> 8 * i);
    return text;
  };
  std::string text;
  switch (random() % 4) {
  case 0:
    for (uint64_t i = 0, n = random() % 300; i < n; ++i)
      text += char(random());
    return text;
  case 1: // bytes, kind of operation, slot, offset, length, remote offset
    for (int i = 0; i < 5; ++i)
      text += number(48 + (i ? 1 << 20 : 0), 8) + number(random() % 5, 8) +
              number(random() % 3 << 32, 8) + number(0, 8) + number(random() % (1 << 20), 8) +
              number(0, 8);
    return text;
  case 2:
    text = "ZORSETR1" + number(1, 8) + number(1, 4) + number(0, 4) + number(random() % 3, 4) +
           number(2, 4);
    for (int i = 0; i < 32 + 32; ++i)
      text += char(random());
    return text;
  default:
    text = "ZORSETR1" + number(random() % 3, 8) + number(random() % 4, 4) +
           number(random() % 4, 4) + number(random() % 3, 4) + number(random() % 3, 4);
    return text + std::string(random() % 200, 'x');
  }
}

TEST(GlooTrust, StrangersNeitherEnterNorDisturb) {
  // Rank 1 is late. Unauthenticated peers connect to the port of rank 0 in the meantime, and
  // continue while the ranks connect and work.
  std::atomic<bool> over{false};
  std::atomic<int> connections{0};
  std::vector<std::thread> strangers;
  size_t before = residentBytes();
  for (int s = 0; s < 3; ++s)
    strangers.emplace_back([&, s] {
      std::mt19937_64 random(s);
      std::vector<int> kept; // some stay connected and send nothing more
      while (!over) {
        for (uint16_t port : listeningPorts())
          if (int fd = connectTo(port); fd >= 0) {
            ++connections;
            std::string text = junk(random);
            (void)!::send(fd, text.data(), text.size(), MSG_NOSIGNAL);
            if (random() % 2 && kept.size() < 100)
              kept.push_back(fd);
            else
              close(fd);
          }
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      for (int fd : kept)
        close(fd);
    });
  auto transports = makeGlooTransports(3, [&](uint32_t rank, GlooOptions &) {
    for (int i = 0; rank == 1 && connections < 60 && i < 10000; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  });
  ASSERT_EQ(transports.size(), 3u);
  EXPECT_GE(connections, 60);
  EXPECT_TRUE(listeningPorts().empty()); // no rank listens any more
  std::thread sender([&] {
    for (uint64_t step = 0; step < 100; ++step)
      EXPECT_FALSE(transports[0]->send({1, step}, 2, &step, sizeof step).failed());
  });
  for (uint64_t step = 0; step < 100; ++step) {
    uint64_t got = 0;
    EXPECT_FALSE(transports[2]->receive({1, step}, 0, &got, sizeof got).failed());
    EXPECT_EQ(got, step);
  }
  sender.join();
  over = true;
  for (std::thread &stranger : strangers)
    stranger.join();
  EXPECT_LT(residentBytes(), before + (32 << 20));
}

TEST(GlooTrust, WrongSecretIsAnError) {
  auto results = tryGlooTransports(2, [](uint32_t rank, GlooOptions &options) {
    options.connectSeconds = 1;
    if (rank == 1)
      options.secret = "a secret of the others";
  });
  ASSERT_TRUE(results[0].failed());
  ASSERT_TRUE(results[1].failed());
  EXPECT_NE(results[1].message().find("does not know the secret of job 'conformance'"),
            std::string::npos)
      << results[1].message();
  EXPECT_NE(results[0].message().find("rank 1 (cpu:1) has not connected"), std::string::npos)
      << results[0].message();
  EXPECT_NE(results[0].message().find("turned away"), std::string::npos) << results[0].message();
}

TEST(GlooTrust, JobsOfOtherNamesDoNotMeet) {
  auto results = tryGlooTransports(2, [](uint32_t rank, GlooOptions &options) {
    options.connectSeconds = 0.5;
    options.job = rank == 0 ? "mine" : "yours";
  });
  EXPECT_TRUE(results[0].failed());
  EXPECT_TRUE(results[1].failed());
}

TEST(GlooTrust, OlderGenerationIsTurnedAway) {
  // A rank of generation 1 obtains the addresses of generation 2.
  class Replayed final : public ProcessGroup {
  public:
    Replayed(uint32_t rank, uint64_t generation, zorse::test::FileGroup &group)
        : rank_(rank), generation_(generation), group_(group) {}
    uint32_t rank() const override { return rank_; }
    uint32_t size() const override { return 2; }
    uint64_t generation() const override { return generation_; }
    Result<std::vector<std::string>> allGatherBytes(const std::string &name,
                                                    const std::string &mine) override {
      return group_.allGatherBytes(name, mine);
    }

  private:
    uint32_t rank_;
    uint64_t generation_;
    zorse::test::FileGroup &group_;
  };
  TemporaryDirectory directory;
  std::vector<Status> results(2);
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < 2; ++rank)
    threads.emplace_back([&, rank] {
      zorse::test::FileGroup shared(directory.path("."), rank, 2);
      Replayed group(rank, 2 - rank, shared);
      GlooOptions options = glooOptions(rank, 2);
      options.connectSeconds = 0.5;
      auto transport = makeGlooTransport(group, options);
      results[rank] = transport.failed() ? Status(transport.error()) : Status();
    });
  for (std::thread &thread : threads)
    thread.join();
  ASSERT_TRUE(results[0].failed());
  ASSERT_TRUE(results[1].failed());
  EXPECT_NE(results[1].message().find("another start"), std::string::npos) << results[1].message();
}

TEST(GlooTrust, ImpostorAtAnAddressIsFoundOut) {
  // An impostor at rank 0's address that replies with the right length but without the secret.
  TemporaryDirectory directory;
  int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  ASSERT_EQ(bind(listener, reinterpret_cast<sockaddr *>(&address), sizeof address), 0);
  ASSERT_EQ(listen(listener, 8), 0);
  getsockname(listener, reinterpret_cast<sockaddr *>(&address), &length);
  std::thread impostor([&] {
    zorse::test::FileGroup group(directory.path("."), 0, 2);
    (void)group.allGatherBytes("transport addresses",
                               "127.0.0.1 " + std::to_string(ntohs(address.sin_port)) + " 1:1");
    int fd = accept(listener, nullptr, nullptr);
    std::string reply(64, 'x');
    (void)!::send(fd, reply.data(), reply.size(), MSG_NOSIGNAL);
    char byte;
    while (recv(fd, &byte, 1, 0) > 0)
      ;
    close(fd);
  });
  zorse::test::FileGroup group(directory.path("."), 1, 2);
  auto result = makeGlooTransport(group, glooOptions(1, 2));
  ASSERT_TRUE(result.failed());
  EXPECT_NE(result.message().find("as rank 0 (cpu:0) does not know the secret"), std::string::npos)
      << result.message();
  close(listener);
  impostor.join();
}

TEST(GlooTrust, OptionsAreChecked) {
  auto messageOf = [](const Changed &change) {
    zorse::runtime::test::TemporaryDirectory directory;
    zorse::test::FileGroup group(directory.path("."), 0, 1);
    GlooOptions options = glooOptions(0, 1);
    change(0, options);
    auto result = makeGlooTransport(group, options);
    return result.failed() ? result.message() : "";
  };
  EXPECT_EQ(messageOf([](uint32_t, GlooOptions &) {}), "");
  EXPECT_NE(
      messageOf([](uint32_t, GlooOptions &o) { o.secret = "short"; }).find("expected at least 16"),
      std::string::npos);
  EXPECT_NE(messageOf([](uint32_t, GlooOptions &o) {
              o.listenAddress = "0.0.0.0";
            }).find("cannot reach '0.0.0.0'"),
            std::string::npos);
  EXPECT_NE(messageOf([](uint32_t, GlooOptions &o) {
              o.listenAddress = "192.0.2.1";
            }).find("cannot listen on '192.0.2.1'"),
            std::string::npos);
  EXPECT_NE(messageOf([](uint32_t, GlooOptions &o) {
              o.listenAddress = "no.such.host.invalid";
            }).find("is not known"),
            std::string::npos);
  EXPECT_NE(messageOf([](uint32_t, GlooOptions &o) { o.peers = {4}; }).find("no peer of rank 4"),
            std::string::npos);
  EXPECT_NE(messageOf([](uint32_t, GlooOptions &o) { o.dataConnections[0] = 99; }).find("1 to 16"),
            std::string::npos);
}

} // namespace
