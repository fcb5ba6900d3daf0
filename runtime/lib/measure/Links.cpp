#include "zorse/runtime/Measure.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <set>

using namespace zorse::runtime;
using nlohmann::json;

namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

constexpr size_t kSmall = 8, kFirst = 64 << 10, kMax = 64 << 20;

/// One end of a measurement. The driver announces the size of the next message, 0 at the end. Every
/// message is answered by eight bytes.
class PingPong {
public:
  PingPong(Transport &transport, uint32_t peer, uint32_t instruction)
      : transport(transport), peer(peer), instruction(instruction) {}

  /// Called by the driver: seconds from sending the first byte to receiving the answer.
  Result<double> ask(uint64_t bytes) {
    uint64_t answer = 0;
    if (Status status = transport.send({instruction, step++}, peer, &bytes, sizeof bytes);
        status.failed())
      return status;
    if (bytes == 0)
      return 0.0;
    data.resize(std::max(data.size(), static_cast<size_t>(bytes)));
    double begin = now();
    Status status = transport.send({instruction, step++}, peer, data.data(), bytes);
    if (status.succeeded())
      status = transport.receive({instruction + 1, step}, peer, &answer, sizeof answer);
    if (status.failed())
      return status;
    return now() - begin;
  }

  Status serve() {
    for (;;) {
      uint64_t bytes = 0;
      if (Status status = transport.receive({instruction, step++}, peer, &bytes, sizeof bytes);
          status.failed() || bytes == 0)
        return status;
      if (bytes > kMax)
        return internalError("a rank that measures links asked for " + std::to_string(bytes) +
                             " bytes");
      data.resize(std::max(data.size(), static_cast<size_t>(bytes)));
      Status status = transport.receive({instruction, step++}, peer, data.data(), bytes);
      if (status.succeeded())
        status = transport.send({instruction + 1, step}, peer, &bytes, sizeof bytes);
      if (status.failed())
        return status;
    }
  }

private:
  Transport &transport;
  uint32_t peer, instruction;
  uint64_t step = 0;
  std::vector<char> data;
};

} // namespace

Result<LinkTimes> zorse::runtime::measureLink(Transport &transport, uint32_t me, uint32_t a,
                                              uint32_t b, uint32_t instruction, double seconds) {
  PingPong conversation(transport, me == a ? b : a, instruction);
  if (me != a) {
    Status status = conversation.serve();
    return status.failed() ? Result<LinkTimes>(status) : LinkTimes();
  }
  LinkTimes times;
  std::vector<double> samples;
  double end = now() + seconds / 3;
  for (int i = 0; i < 200 && (i < 8 || now() < end); ++i) {
    Result<double> took = conversation.ask(kSmall);
    if (took.failed())
      return took.error();
    if (i >= 3) // connections and buffers are warm
      samples.push_back(*took);
  }
  double trip = median(samples);
  times.latency = trip / 2;
  // Doubles the size until a message takes long enough, then repeats that size.
  size_t bytes = kFirst;
  for (;; bytes *= 2) {
    Result<double> took = conversation.ask(bytes);
    if (took.failed())
      return took.error();
    if (bytes >= kMax || *took > std::max(seconds / 8, 20 * trip))
      break;
  }
  samples.clear();
  end = now() + seconds * 2 / 3;
  for (int i = 0; i < 50 && (i < 3 || now() < end); ++i) {
    Result<double> took = conversation.ask(bytes);
    if (took.failed())
      return took.error();
    samples.push_back(std::max(*took - trip, 1e-9));
  }
  times.bandwidth = static_cast<double>(bytes) / median(samples);
  // Time of smaller messages beyond the round trip and the transfer at that bandwidth.
  std::vector<double> beyond;
  for (size_t size = kFirst; size < bytes; size *= 4) {
    samples.clear();
    for (int i = 0; i < 7; ++i) {
      Result<double> took = conversation.ask(size);
      if (took.failed())
        return took.error();
      samples.push_back(*took - trip - static_cast<double>(size) / times.bandwidth);
    }
    beyond.push_back(median(samples));
  }
  if (!beyond.empty())
    times.halfBandwidthBytes = std::max(0.0, median(beyond) * times.bandwidth);
  if (Result<double> done = conversation.ask(0); done.failed())
    return done.error();
  return times;
}

namespace {

/// The measurements that this rank takes part in, in an order that is the same on all ranks.
class LinkRounds {
public:
  LinkRounds(ProcessGroup &group, Transport &transport, const std::vector<uint32_t> &nodes,
             double seconds)
      : group(group), transport(transport), seconds(seconds), me(group.rank()) {
    for (uint32_t node : nodes)
      count = std::max(count, node + 1);
    ranks.resize(count);
    for (uint32_t r = 0; r < nodes.size(); ++r)
      ranks[nodes[r]].push_back(r);
  }

  std::vector<RankLink> mine; ///< links that this rank measured as driver

  /// A few nodes measure one at a time, because they may share one machine; many nodes measure
  /// together.
  Status insideNodes() {
    for (const std::vector<uint32_t> &node : ranks) {
      if (count <= 8 && node.size() > 1)
        if (Status status = meet(); status.failed())
          return status;
      if (node.size() > 1 && (me == node[0] || me == node[1])) {
        Result<LinkTimes> times =
            measureLink(transport, me, node[0], node[1],
                        instruction + 2 * static_cast<uint32_t>(&node - ranks.data()), seconds);
        if (times.failed())
          return times.error();
        if (me == node[0])
          mine.push_back({node[0], node[1], *times, 0});
      }
    }
    instruction += 2 * count; // operations of different ranks need different numbers
    return Status::success();
  }

  Status betweenNodes(const std::function<void(const std::string &)> &progress) {
    std::set<std::pair<uint32_t, uint32_t>> pairs;
    for (uint32_t a = 0; a < count; ++a)
      for (uint32_t b = a + 1; b < count; ++b)
        if (count <= 8 || b == a + 1 || b == a + count / 2)
          pairs.insert({a, b});
    for (auto [a, b] : pairs) {
      if (ranks[a].empty() || ranks[b].empty())
        continue;
      Result<LinkTimes> alone = measure(a, b, 1);
      if (alone.failed())
        return alone.error();
      Result<double> together = streams(a, b) < 2 ? Result<double>(0.0) : measureTogether(a, b);
      if (together.failed())
        return together.error();
      if (me == ranks[a][0])
        mine.push_back({ranks[a][0], ranks[b][0], *alone, *together});
      if (progress)
        progress("nodes " + std::to_string(a) + " and " + std::to_string(b));
    }
    return Status::success();
  }

private:
  ProcessGroup &group;
  Transport &transport;
  double seconds;
  uint32_t me, count = 0, instruction = 1;
  int turn = 0;
  std::vector<std::vector<uint32_t>> ranks; ///< ranks by node

  Status meet() {
    Result<std::vector<std::string>> met =
        group.allGatherBytes("links " + std::to_string(turn++), "");
    return met.failed() ? met.error() : Status::success();
  }

  size_t streams(uint32_t a, uint32_t b) const {
    return std::min(ranks[a].size(), ranks[b].size());
  }

  /// Measures the first `pairs` pairs of ranks of two nodes at the same time. Returns the times of
  /// this rank if it was a driver.
  Result<LinkTimes> measure(uint32_t a, uint32_t b, size_t pairs) {
    if (Status status = meet(); status.failed())
      return status;
    LinkTimes own;
    for (size_t i = 0; i < pairs; ++i)
      if (me == ranks[a][i] || me == ranks[b][i]) {
        Result<LinkTimes> times = measureLink(transport, me, ranks[a][i], ranks[b][i],
                                              instruction + 2 * static_cast<uint32_t>(i), seconds);
        if (times.failed())
          return times;
        own = *times;
      }
    instruction += 2 * static_cast<uint32_t>(streams(a, b));
    return own;
  }

  /// Total bytes per second of all pairs together.
  Result<double> measureTogether(uint32_t a, uint32_t b) {
    Result<LinkTimes> own = measure(a, b, streams(a, b));
    if (own.failed())
      return own.error();
    char text[32];
    std::snprintf(text, sizeof text, "%.17g", own->bandwidth);
    Result<std::vector<std::string>> all =
        group.allGatherBytes("streams " + std::to_string(turn++), text);
    if (all.failed())
      return all.error();
    double sum = 0;
    for (uint32_t r : ranks[a]) // only drivers publish a value
      sum += std::atof((*all)[r].c_str());
    return sum;
  }
};

json describe(const std::vector<RankLink> &links) {
  json rows = json::array();
  for (const RankLink &link : links)
    rows.push_back({link.a, link.b, link.alone.latency, link.alone.bandwidth, link.together,
                    link.alone.halfBandwidthBytes});
  return rows;
}

/// Appends the links that a rank has published. Returns false if they cannot be parsed.
bool readLinks(const std::string &text, std::vector<RankLink> &links) {
  json found = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!found.is_array())
    return false;
  for (const json &row : found) {
    bool good = row.is_array() && row.size() == 6 && row[0].is_number_unsigned() &&
                row[1].is_number_unsigned();
    for (size_t i = 2; good && i < 6; ++i)
      good = row[i].is_number() && row[i].get<double>() >= 0;
    if (!good)
      return false;
    links.push_back({row[0].get<uint32_t>(),
                     row[1].get<uint32_t>(),
                     {row[2].get<double>(), row[3].get<double>(), row[5].get<double>()},
                     row[4].get<double>()});
  }
  return true;
}

} // namespace

Result<std::vector<RankLink>>
zorse::runtime::measureLinks(ProcessGroup &group, Transport &transport,
                             const std::vector<uint32_t> &nodes, double seconds,
                             const std::function<void(const std::string &)> &progress) {
  LinkRounds rounds(group, transport, nodes, seconds);
  if (Status status = rounds.insideNodes(); status.failed())
    return status;
  if (Status status = rounds.betweenNodes(progress); status.failed())
    return status;
  Result<std::vector<std::string>> all =
      group.allGatherBytes("links measured", describe(rounds.mine).dump());
  if (all.failed())
    return all.error();
  std::vector<RankLink> links;
  for (const std::string &text : *all)
    if (!readLinks(text, links))
      return userError("a rank published links that cannot be read; start every rank with the same "
                       "version of Zorse");
  return links;
}
