// transport-rank MODE --folder DIR --rank R --ranks N [options]: one rank of a Gloo transport, for
// tests that start ranks in any way (network namespaces, hosts with a shared directory).
//
// - random: random operations, compared bit by bit with plain sums. Options: --seed, --operations,
//   --count, --max-steps, --queues
// - levels: --operations random sums by levels, compared bit by bit with their trees. Options:
// --seed
// - gather: all-gathers of equal shards; rank 0 prints the seconds of the fastest one. Options:
//   --mib, --repeat
// - reduce: reduce-scatters of equal shards, same options and output
// - transfer: rank 0 sends to the last rank, same options and output
// - endless: endless sums
//
// Options of all modes:
// - --local-addr ADDRESS
// - --sites 0,0,1,1
// - --contexts N: to ranks of other sites
// - --delays MILLISECONDS: injected
#include "FileGroup.h"
#include "LevelSums.h"
#include "RandomOperations.h"

#include "zorse/runtime/DelayedTransport.h"
#include "zorse/runtime/GlooTransport.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

using namespace zorse::runtime;
using namespace zorse::runtime::test;

namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

int complain(const std::string &message) {
  std::fprintf(stderr, "transport-rank: %s\n", message.c_str());
  return 1;
}

int randomOperations(Transport &transport, const RandomProgram &program, uint32_t rank,
                     uint64_t steps) {
  auto found = perform(program, rank, steps, transport);
  if (found.failed())
    return complain(found.message());
  size_t bytes = 0;
  for (size_t i = 0; i < found->size(); ++i) {
    const size_t operation = i % program.operations.size(), step = i / program.operations.size();
    bytes += (*found)[i].size();
    if ((*found)[i] != plainResults(program, program.operations[operation], step)[rank])
      return complain("operation " + std::to_string(operation) + " of step " +
                      std::to_string(step) + " differs");
  }
  std::printf("%zu operations, %zu bytes: equal to the bit\n", found->size(), bytes);
  return 0;
}

int sumsByLevels(Transport &transport, uint64_t seed, uint32_t sums, uint32_t rank,
                 uint32_t ranks) {
  for (uint32_t i = 0; i < sums; ++i) {
    const LevelSum sum = randomLevelSum(seed + i, ranks);
    auto found = perform(sum, rank, /*step=*/i, transport);
    if (found.failed())
      return complain(found.message());
    if (*found != treeSums(sum, i)[rank])
      return complain("sum " + std::to_string(sum.seed) + " by levels differs");
  }
  std::printf("%u sums by levels: equal to the bit\n", sums);
  return 0;
}

Status once(Transport &transport, const std::string &mode, uint32_t rank, uint32_t ranks,
            uint64_t step, std::vector<float> &full, std::vector<float> &shard) {
  std::vector<Shard> shards, all;
  int64_t count = int64_t(full.size());
  for (uint32_t r = 0; r < ranks; ++r) {
    shards.push_back({r, count * r / ranks, count * (r + 1) / ranks});
    all.push_back({r, 0, count});
  }
  if (mode == "gather") {
    AllGatherArguments a;
    a.shards = shards;
    a.reads = all;
    a.full = full.data();
    a.shard = full.data() + shards[rank].begin;
    return transport.allGather({1, step}, a);
  }
  if (mode == "reduce") {
    ReduceScatterArguments a;
    a.shards = shards;
    a.terms = all;
    a.full = full.data();
    a.shard = shard.data();
    return transport.reduceScatter({1, step}, a);
  }
  if (rank == 0)
    return transport.send({1, step}, ranks - 1, full.data(), full.size() * 4);
  return rank == ranks - 1 ? transport.receive({1, step}, 0, full.data(), full.size() * 4)
                           : Status::success();
}

/// Waits until all ranks have called it.
Status meet(Transport &transport, uint32_t ranks, uint32_t instruction, uint64_t step) {
  double value = 1;
  AllReduceArguments a;
  for (uint32_t r = 0; r < ranks; ++r)
    a.members.push_back(r);
  a.data = &value;
  a.count = 1;
  return transport.allReduce({instruction, step}, a);
}

} // namespace

int main(int argc, char **argv) {
  std::map<std::string, std::string> given{
      {"--rank", "0"},      {"--ranks", "1"},       {"--local-addr", "127.0.0.1"},
      {"--seed", "1"},      {"--operations", "30"}, {"--count", "30000"},
      {"--max-steps", "3"}, {"--queues", "2"},      {"--mib", "4"},
      {"--repeat", "5"},    {"--contexts", "1"},    {"--delays", "0"},
      {"--sites", ""},      {"--folder", "."}};
  if (argc < 2 || argc % 2 != 0)
    return complain("expected a mode and options with values");
  std::string mode = argv[1];
  for (int i = 2; i < argc; i += 2) {
    if (!given.count(argv[i]))
      return complain(std::string("unknown option ") + argv[i]);
    given[argv[i]] = argv[i + 1];
  }
  auto number = [&](const char *name) {
    return uint32_t(std::strtoul(given[name].c_str(), nullptr, 10));
  };
  uint32_t rank = number("--rank"), ranks = number("--ranks");
  GlooOptions options;
  options.job = "transport-rank";
  options.secret = "not a secret at all";
  options.listenAddress = given["--local-addr"];
  for (size_t at = 0; at < given["--sites"].size();
       at = given["--sites"].find(',', at) == std::string::npos
                ? std::string::npos
                : given["--sites"].find(',', at) + 1)
    options.nodes.push_back(uint32_t(std::atoi(given["--sites"].c_str() + at)));
  for (uint32_t peer = 0; peer < ranks; ++peer) {
    options.deviceNames.push_back("cpu:" + std::to_string(peer));
    if (peer == rank)
      continue;
    options.peers.push_back(peer);
    if (peer < options.nodes.size() && options.nodes[peer] != options.nodes[rank])
      options.dataConnections[peer] = number("--contexts");
  }
  zorse::test::FileGroup group(given["--folder"], rank, ranks);
  Result<std::unique_ptr<Transport>> made = makeGlooTransport(group, options);
  if (made.failed())
    return complain(made.message());
  std::unique_ptr<Transport> transport = std::move(*made);
  if (double delays = std::atof(given["--delays"].c_str()); delays > 0)
    transport = makeDelayedTransport(std::move(transport), number("--seed") + rank, delays);

  if (mode == "random")
    return randomOperations(*transport,
                            randomProgram(number("--seed"), ranks, number("--queues"),
                                          number("--operations"), number("--count")),
                            rank, number("--max-steps"));
  if (mode == "levels")
    return sumsByLevels(*transport, number("--seed"), number("--operations"), rank, ranks);
  if (mode == "endless")
    for (uint64_t step = 0;; ++step)
      if (Status status = meet(*transport, ranks, 1, step); status.failed())
        return complain(status.message());
  if (mode != "gather" && mode != "reduce" && mode != "transfer")
    return complain("unknown mode " + mode);
  std::vector<float> full(size_t(number("--mib")) << 18, 1.0f), shard(full.size() / ranks + 2);
  double min = 1e9;
  for (uint64_t step = 0; step < number("--repeat"); ++step) {
    Status status = meet(*transport, ranks, 2, 2 * step);
    double begin = now();
    if (status.succeeded())
      status = once(*transport, mode, rank, ranks, step, full, shard);
    if (status.succeeded())
      status = meet(*transport, ranks, 2, 2 * step + 1);
    if (status.failed())
      return complain(status.message());
    min = std::min(min, now() - begin);
  }
  if (rank == 0)
    std::printf("%.6f\n", min);
  return 0;
}
