// transport-times [--max BYTES] [--contexts N] [--quick] [--least]: compares Gloo between two
// processes over loopback with local transports between two threads, a plain TCP connection over
// loopback, and memcpy, by size.
//
//   transfer        half of a round trip of two transfers
//   socket          the same bytes with send and recv on one TCP connection: the kernel's cost for
//                   any caller
//   all-gather      two owners with half of the bytes each; memcpy of half the bytes is the
//                   minimum for each
//   reduce-scatter  two contributors of all bytes (f32), two owners of a half each; same minimum
//
// Prints medians, or with --least the minimum of each, for a machine with other work. GB/s count
// the bytes that one device receives. "gloo cpu" is the CPU time of both processes together; like
// that of memcpy it is always a median, because other work changes it less. "a/b" is the ratio of
// the columns. The CPU time of a socket relative to memcpy depends on the CPU and the kernel (4.5
// to 8 times); that of Gloo relative to a socket depends on our code.
#include "FileGroup.h"

#include "zorse/runtime/GlooTransport.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <thread>
#include <time.h>
#include <unistd.h>
#include <vector>

using namespace zorse::runtime;

namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void check(const Status &status) {
  if (status.failed()) {
    std::fprintf(stderr, "transport-times: %s\n", status.message().c_str());
    std::exit(1);
  }
}

double share = 0.5; ///< quantile of the measurements that is shown

double typical(std::vector<double> values, double share = ::share) {
  auto at = values.begin() + size_t(double(values.size()) * share);
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

enum Kind { Transfer, Gather, Scatter, kKinds };
const char *const kNames[] = {"transfer", "all-gather", "reduce-scatter"};

int repetitions(size_t bytes, bool quick) {
  size_t wanted = std::max<size_t>(8, std::min<size_t>(2000, (size_t(256) << 20) / (bytes + 1)));
  return int(quick ? std::max<size_t>(5, wanted / 8) : wanted);
}

/// Cost of one operation: seconds, and CPU seconds of this process.
struct Cost {
  double seconds, cpu;
};

double cpuSeconds(clockid_t clock) {
  timespec time;
  clock_gettime(clock, &time);
  return double(time.tv_sec) + double(time.tv_nsec) * 1e-9;
}

/// Measures on device `me` of two.
Cost measure(Transport &transport, uint32_t me, Kind kind, size_t bytes, uint32_t instruction,
             int count) {
  std::vector<float> full(bytes / 4 + 1, 1.0f), shard(bytes / 8 + 1);
  int64_t elements = int64_t(bytes / 4), half = elements / 2;
  std::vector<Shard> shards{{0, 0, half}, {1, half, elements}};
  auto once = [&](uint64_t step) {
    if (kind == Transfer) {
      if (me == 0) {
        check(transport.send({instruction, step}, 1, full.data(), bytes));
        check(transport.receive({instruction + 1, step}, 1, full.data(), bytes));
      } else {
        check(transport.receive({instruction, step}, 0, full.data(), bytes));
        check(transport.send({instruction + 1, step}, 0, full.data(), bytes));
      }
    } else if (kind == Gather) {
      AllGatherArguments a;
      a.shards = shards;
      a.reads = {{0, 0, elements}, {1, 0, elements}};
      a.full = full.data();
      a.shard = full.data() + shards[me].begin;
      check(transport.allGather({instruction, step}, a));
    } else {
      ReduceScatterArguments a;
      a.terms = {{0, 0, elements}, {1, 0, elements}};
      a.shards = shards;
      a.full = full.data();
      a.shard = shard.data();
      check(transport.reduceScatter({instruction, step}, a));
    }
  };
  std::vector<double> times, cpu;
  for (int i = 0; i < count + 3; ++i) {
    const double begin = now(), used = cpuSeconds(CLOCK_PROCESS_CPUTIME_ID);
    once(uint64_t(i));
    if (i >= 3) {
      times.push_back((now() - begin) / (kind == Transfer ? 2 : 1));
      cpu.push_back((cpuSeconds(CLOCK_PROCESS_CPUTIME_ID) - used) / (kind == Transfer ? 2 : 1));
    }
  }
  return {typical(times), typical(cpu, 0.5)};
}

struct Copied {
  double seconds, cpu; ///< elapsed time and CPU time of one memcpy
};

Copied copyTimes(size_t bytes, int count) {
  std::vector<char> from(bytes + 1, 1), to(bytes + 1, 2);
  int inner = bytes < 65536 ? 100 : 1;
  auto used = [] { return cpuSeconds(CLOCK_THREAD_CPUTIME_ID); };
  std::vector<double> times, cpu;
  for (int i = 0; i < count + 3; ++i) {
    double begin = now(), usedBefore = used();
    for (int j = 0; j < inner; ++j) {
      std::memcpy(to.data(), from.data(), bytes);
      asm volatile("" ::"r"(to.data()) : "memory");
    }
    if (i >= 3) {
      times.push_back((now() - begin) / inner);
      cpu.push_back((used() - usedBefore) / inner);
    }
  }
  return {typical(times), typical(cpu, 0.5)};
}

void checkCall(bool worked, const char *what) {
  if (!worked)
    std::perror(what), std::exit(1);
}

/// Both ends of one TCP connection over loopback.
std::pair<int, int> connectSockets() {
  int listener = socket(AF_INET, SOCK_STREAM, 0), from = socket(AF_INET, SOCK_STREAM, 0), on = 1;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  checkCall(bind(listener, reinterpret_cast<sockaddr *>(&address), length) == 0 &&
                listen(listener, 1) == 0,
            "listen");
  checkCall(getsockname(listener, reinterpret_cast<sockaddr *>(&address), &length) == 0,
            "getsockname");
  checkCall(connect(from, reinterpret_cast<sockaddr *>(&address), length) == 0, "connect");
  int to = accept(listener, nullptr, nullptr);
  checkCall(to >= 0, "accept");
  close(listener);
  for (int end : {from, to})
    setsockopt(end, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return {from, to};
}

/// Half of a round trip of `bytes` each way over `connection`. This process is end `me`.
std::vector<Cost> socketCosts(int connection, uint32_t me, const std::vector<size_t> &sizes,
                              bool quick) {
  std::vector<Cost> costs;
  for (size_t bytes : sizes) {
    std::vector<char> data(bytes, 1);
    auto whole = [&](auto call, const char *what) {
      for (size_t done = 0; done < bytes;) {
        const ssize_t moved = call(data.data() + done, bytes - done);
        checkCall(moved > 0, what);
        done += size_t(moved);
      }
    };
    auto write = [&] {
      whole([&](char *from, size_t rest) { return send(connection, from, rest, MSG_NOSIGNAL); },
            "send");
    };
    auto read = [&] {
      whole([&](char *to, size_t rest) { return recv(connection, to, rest, 0); }, "recv");
    };
    std::vector<double> times, cpu;
    for (int i = 0, count = repetitions(bytes, quick); i < count + 3; ++i) {
      const double begin = now(), used = cpuSeconds(CLOCK_PROCESS_CPUTIME_ID);
      me == 0 ? write() : read();
      me == 0 ? read() : write();
      if (i >= 3) {
        times.push_back((now() - begin) / 2);
        cpu.push_back((cpuSeconds(CLOCK_PROCESS_CPUTIME_ID) - used) / 2);
      }
    }
    costs.push_back({typical(times), typical(cpu, 0.5)});
  }
  return costs;
}

GlooOptions options(uint32_t rank, uint32_t contexts) {
  GlooOptions options;
  options.job = "transport-times";
  options.secret = "not a secret at all";
  options.peers = {1 - rank};
  options.dataConnections[1 - rank] = contexts;
  return options;
}

std::vector<Cost> measureAll(Transport &transport, uint32_t me, const std::vector<size_t> &sizes,
                             bool quick) {
  std::vector<Cost> costs;
  uint32_t instruction = 0;
  for (int kind = 0; kind < kKinds; ++kind)
    for (size_t bytes : sizes)
      costs.push_back(
          measure(transport, me, Kind(kind), bytes, instruction += 2, repetitions(bytes, quick)));
  return costs;
}

} // namespace

int main(int argc, char **argv) {
  size_t max = 64 << 20;
  uint32_t contexts = 1;
  bool quick = false;
  for (int i = 1; i < argc; ++i) {
    std::string argument = argv[i];
    if (argument == "--max" && i + 1 < argc)
      max = std::strtoull(argv[++i], nullptr, 10);
    else if (argument == "--contexts" && i + 1 < argc)
      contexts = uint32_t(std::atoi(argv[++i]));
    else if (argument == "--quick")
      quick = true;
    else if (argument == "--least")
      share = 0;
    else
      return std::fprintf(
                 stderr,
                 "usage: transport-times [--max BYTES] [--contexts N] [--quick] [--least]\n"),
             1;
  }
  std::vector<size_t> sizes;
  for (size_t bytes : {4u, 64u, 1u << 10, 4u << 10, 16u << 10, 64u << 10, 256u << 10, 1u << 20,
                       4u << 20, 16u << 20, 64u << 20})
    if (bytes <= max)
      sizes.push_back(bytes);

  char directory[] = "/tmp/transport-times-XXXXXX";
  if (!mkdtemp(directory))
    return std::perror("transport-times"), 1;
  auto connect = [&](uint32_t rank) {
    zorse::test::FileGroup group(directory, rank, 2);
    Result<std::unique_ptr<Transport>> transport =
        makeGlooTransport(group, options(rank, contexts));
    check(transport.failed() ? Status(transport.error()) : Status());
    return std::move(*transport);
  };
  const std::pair<int, int> ends = connectSockets();
  auto *others = static_cast<double *>(
      mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  pid_t other = fork();
  if (other == 0) {
    std::vector<Cost> costs = measureAll(*connect(1), 1, sizes, quick);
    std::vector<Cost> plain = socketCosts(ends.second, 1, sizes, quick);
    costs.insert(costs.end(), plain.begin(), plain.end());
    for (size_t i = 0; i < costs.size(); ++i)
      others[i] = costs[i].cpu;
    std::fflush(nullptr);
    _exit(0);
  }
  std::vector<Cost> gloo = measureAll(*connect(0), 0, sizes, quick);
  const std::vector<Cost> sockets = socketCosts(ends.first, 0, sizes, quick);
  waitpid(other, nullptr, 0);
  std::string remove = std::string("rm -rf ") + directory;
  if (std::system(remove.c_str()) != 0)
    std::fprintf(stderr, "transport-times: %s was not removed\n", directory);

  auto transports = makeLocalTransports(2);
  std::thread second([&] { measureAll(*transports[1], 1, sizes, quick); });
  std::vector<Cost> local = measureAll(*transports[0], 0, sizes, quick);
  second.join();

  size_t at = 0;
  for (int kind = 0; kind < kKinds; ++kind) {
    std::printf("%-14s %9s %10s %10s %10s %9s %10s %11s %11s %10s\n", kNames[kind], "bytes",
                "memcpy us", "local us", "gloo us", "gloo GB/s", "gloo/local", "gloo/memcpy",
                "gloo cpu us", "cpu/memcpy");
    for (size_t bytes : sizes) {
      size_t received = kind == Transfer ? bytes : bytes / 2;
      const Copied copied = copyTimes(received, repetitions(bytes, quick));
      double copy = copied.seconds, cpu = gloo[at].cpu + others[at];
      std::printf("%-14s %9zu %10.2f %10.2f %10.2f %9.3f %10.2f %11.2f %11.2f %10.2f\n", "", bytes,
                  copy * 1e6, local[at].seconds * 1e6, gloo[at].seconds * 1e6,
                  double(received) / gloo[at].seconds * 1e-9, gloo[at].seconds / local[at].seconds,
                  gloo[at].seconds / copy, cpu * 1e6, cpu / copied.cpu);
      ++at;
    }
  }
  std::printf("%-14s %9s %10s %10s %10s %12s %10s\n", "socket", "bytes", "us", "gloo us", "cpu us",
              "gloo cpu us", "gloo cpu/cpu");
  for (size_t i = 0; i < sizes.size(); ++i) {
    const double cpu = sockets[i].cpu + others[kKinds * sizes.size() + i],
                 used = gloo[i].cpu + others[i];
    std::printf("%-14s %9zu %10.2f %10.2f %10.2f %12.2f %10.2f\n", "", sizes[i],
                sockets[i].seconds * 1e6, gloo[i].seconds * 1e6, cpu * 1e6, used * 1e6, used / cpu);
  }
  return 0;
}
