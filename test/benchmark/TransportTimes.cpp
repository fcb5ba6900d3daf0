// transport-times [--max BYTES] [--contexts N] [--quick]: Gloo between two processes over loopback, against local transports between two threads and against
// memcpy, by size.
//
//   transfer        half of a round trip of two transfers
//   all-gather      two owners with half of the bytes each; memcpy of half the bytes is the least that each must take
//   reduce-scatter  two contributors of all bytes (f32), two owners of a half each; likewise
//
// Medians. GB/s count what one device receives. A column "/ x" is this transport's time over that of x.
#include "FileGroup.h"

#include "zorse/runtime/GlooTransport.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

using namespace zorse::runtime;

namespace {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

void check(const Status &status) {
  if (status.failed()) {
    std::fprintf(stderr, "transport-times: %s\n", status.message().c_str());
    std::exit(1);
  }
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

enum Kind { Transfer, Gather, Scatter, kKinds };
const char *const kNames[] = {"transfer", "all-gather", "reduce-scatter"};

int repetitions(size_t bytes, bool quick) {
  size_t wanted = std::max<size_t>(8, std::min<size_t>(2000, (size_t(256) << 20) / (bytes + 1)));
  return int(quick ? std::max<size_t>(5, wanted / 8) : wanted);
}

/// Seconds of one operation, on device `me` of two.
double measure(Transport &transport, uint32_t me, Kind kind, size_t bytes, uint32_t entry, int count) {
  std::vector<float> full(bytes / 4 + 1, 1.0f), shard(bytes / 8 + 1);
  int64_t elements = int64_t(bytes / 4), half = elements / 2;
  std::vector<Shard> shards{{0, 0, half}, {1, half, elements}};
  auto once = [&](uint64_t step) {
    if (kind == Transfer) {
      if (me == 0) {
        check(transport.send({entry, step}, 1, full.data(), bytes));
        check(transport.receive({entry + 1, step}, 1, full.data(), bytes));
      } else {
        check(transport.receive({entry, step}, 0, full.data(), bytes));
        check(transport.send({entry + 1, step}, 0, full.data(), bytes));
      }
    } else if (kind == Gather) {
      AllGatherArguments a;
      a.shards = shards;
      a.readers = {0, 1};
      a.full = full.data();
      a.shard = full.data() + shards[me].begin;
      check(transport.allGather({entry, step}, a));
    } else {
      ReduceScatterArguments a;
      a.contributors = {0, 1};
      a.shards = shards;
      a.full = full.data();
      a.shard = shard.data();
      check(transport.reduceScatter({entry, step}, a));
    }
  };
  std::vector<double> times;
  for (int i = 0; i < count + 3; ++i) {
    double begin = now();
    once(uint64_t(i));
    if (i >= 3)
      times.push_back((now() - begin) / (kind == Transfer ? 2 : 1));
  }
  return median(times);
}

double copySeconds(size_t bytes, int count) {
  std::vector<char> from(bytes + 1, 1), to(bytes + 1, 2);
  int inner = bytes < 65536 ? 100 : 1;
  std::vector<double> times;
  for (int i = 0; i < count + 3; ++i) {
    double begin = now();
    for (int j = 0; j < inner; ++j) {
      std::memcpy(to.data(), from.data(), bytes);
      asm volatile("" ::"r"(to.data()) : "memory");
    }
    if (i >= 3)
      times.push_back((now() - begin) / inner);
  }
  return median(times);
}

GlooOptions options(uint32_t rank, uint32_t contexts) {
  GlooOptions options;
  options.job = "transport-times";
  options.secret = "not a secret at all";
  options.peers = {1 - rank};
  options.contexts[1 - rank] = contexts;
  return options;
}

std::vector<double> measureAll(Transport &transport, uint32_t me, const std::vector<size_t> &sizes, bool quick) {
  std::vector<double> seconds;
  uint32_t entry = 0;
  for (int kind = 0; kind < kKinds; ++kind)
    for (size_t bytes : sizes)
      seconds.push_back(measure(transport, me, Kind(kind), bytes, entry += 2, repetitions(bytes, quick)));
  return seconds;
}

} // namespace

int main(int argc, char **argv) {
  size_t most = 64 << 20;
  uint32_t contexts = 1;
  bool quick = false;
  for (int i = 1; i < argc; ++i) {
    std::string argument = argv[i];
    if (argument == "--max" && i + 1 < argc)
      most = std::strtoull(argv[++i], nullptr, 10);
    else if (argument == "--contexts" && i + 1 < argc)
      contexts = uint32_t(std::atoi(argv[++i]));
    else if (argument == "--quick")
      quick = true;
    else
      return std::fprintf(stderr, "usage: transport-times [--max BYTES] [--contexts N] [--quick]\n"), 1;
  }
  std::vector<size_t> sizes;
  for (size_t bytes : {4u, 64u, 1u << 10, 4u << 10, 16u << 10, 64u << 10, 256u << 10, 1u << 20, 4u << 20, 16u << 20, 64u << 20})
    if (bytes <= most)
      sizes.push_back(bytes);

  char folder[] = "/tmp/transport-times-XXXXXX";
  if (!mkdtemp(folder))
    return std::perror("transport-times"), 1;
  auto connect = [&](uint32_t rank) {
    zorse::test::FileGroup group(folder, rank, 2);
    Result<std::unique_ptr<Transport>> transport = makeGlooTransport(group, options(rank, contexts));
    check(transport.failed() ? Status(transport.error()) : Status());
    return std::move(*transport);
  };
  pid_t other = fork();
  if (other == 0) {
    measureAll(*connect(1), 1, sizes, quick);
    std::fflush(nullptr);
    _exit(0);
  }
  std::vector<double> gloo = measureAll(*connect(0), 0, sizes, quick);
  waitpid(other, nullptr, 0);
  std::string remove = std::string("rm -rf ") + folder;
  if (std::system(remove.c_str()) != 0)
    std::fprintf(stderr, "transport-times: %s is left behind\n", folder);

  auto transports = makeLocalTransports(2);
  std::thread second([&] { measureAll(*transports[1], 1, sizes, quick); });
  std::vector<double> local = measureAll(*transports[0], 0, sizes, quick);
  second.join();

  size_t at = 0;
  for (int kind = 0; kind < kKinds; ++kind) {
    std::printf("%-14s %10s %10s %10s %9s %9s %11s %12s\n", kNames[kind], "bytes", "memcpy us", "local us", "gloo us", "gloo GB/s", "gloo/local", "gloo/memcpy");
    for (size_t bytes : sizes) {
      size_t received = kind == Transfer ? bytes : bytes / 2;
      double copy = copySeconds(received, repetitions(bytes, quick));
      std::printf("%-14s %10zu %10.2f %10.2f %10.2f %9.3f %11.2f %12.2f\n", "", bytes, copy * 1e6, local[at] * 1e6, gloo[at] * 1e6,
                  double(received) / gloo[at] * 1e-9, gloo[at] / local[at], gloo[at] / copy);
      ++at;
    }
  }
  return 0;
}
