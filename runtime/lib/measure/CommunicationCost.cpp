// Measures the CPU time that messages cost a rank.
#include "zorse/runtime/Measure.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <ctime>
#include <random>
#include <thread>

using namespace zorse::runtime;
using nlohmann::json;

namespace {

#define ZORSE_TRY(expression)                                                                      \
  do {                                                                                             \
    if (Status status_ = (expression); status_.failed())                                           \
      return status_;                                                                              \
  } while (false)

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double cpuSeconds() {
  timespec time = {};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return double(time.tv_sec) + double(time.tv_nsec) * 1e-9;
}

constexpr uint64_t kSmall = 8, kMiddle = 32 << 10, kLarge = 2 << 20;
enum Order : uint64_t { Answer, Compute, End };

/// Threads that keep the CPU cores busy.
class BusyThreads {
public:
  explicit BusyThreads(int count) {
    for (int i = 0; i < count; ++i)
      threads.emplace_back([this] {
        for (volatile uint64_t n = 0; !stop.load(std::memory_order_relaxed);)
          for (int k = 0; k < 1000; ++k)
            n = n + 1;
      });
  }
  ~BusyThreads() {
    stop = true;
    for (std::thread &thread : threads)
      thread.join();
  }

private:
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
};

class CommunicationCostMeasurement {
public:
  CommunicationCostMeasurement(Transport &transport, uint32_t peer, uint32_t instruction)
      : transport(transport), peer(peer), instruction(instruction), data(kLarge) {}

  /// Runs the driver's side. \returns additional latency of a message, in seconds, while the
  /// subject computes
  Result<double> drive(double seconds) {
    // The message count depends on the measured speed.
    uint64_t large = kLarge;
    for (uint64_t bytes : {kMiddle, large}) {
      double took = 0;
      for (int i = 0; i < 3; ++i) {
        double begin = now();
        ZORSE_TRY(ask(Answer, bytes));
        took = now() - begin;
      }
      if (bytes == kMiddle && took > seconds / 32) // a slow link
        large = 4 * kMiddle;
      int count = std::min(int(seconds / 4 / std::max(took, 1e-9)), 200);
      for (int i = 0; i < count; ++i)
        ZORSE_TRY(ask(Answer, bytes));
    }
    Result<double> idle = trips(seconds / 3);
    if (idle.failed())
      return idle;
    ZORSE_TRY(ask(Compute, 0));
    Result<double> computing = trips(seconds * 2);
    if (computing.failed())
      return computing;
    ZORSE_TRY(ask(End, 0));
    return std::max(0.0, *computing - *idle);
  }

  /// Runs the subject's side. Returns CPU seconds per byte and per message.
  Result<CommunicationWork> serve(int threads) {
    std::unique_ptr<BusyThreads> busy;
    struct Sum {
      double seconds = 0;
      int count = 0;
    } middle, large;
    uint64_t before = 0, largeBytes = 0;
    int inARow = 0;
    double began = cpuSeconds();
    for (;;) {
      uint64_t order[2] = {};
      ZORSE_TRY(transport.receive({instruction, step++}, peer, order, sizeof order));
      if (order[0] >= End)
        break;
      if (order[0] == Compute)
        busy = std::make_unique<BusyThreads>(threads);
      if (order[0] != Answer)
        continue;
      uint64_t bytes = order[1];
      if (bytes > kLarge)
        return internalError("a rank that measures asked for " + std::to_string(bytes) + " bytes");
      if (bytes > kSmall)
        ZORSE_TRY(transport.receive({instruction, step++}, peer, data.data(), bytes));
      ZORSE_TRY(transport.send({instruction + 1, step}, peer, data.data(), bytes));
      double at = cpuSeconds();
      inARow = bytes == before ? inARow + 1 : 1;
      before = bytes;
      if (inARow > 1 && bytes > kSmall) { // CPU time since the previous answer
        Sum &sum = bytes > kMiddle ? large : middle;
        largeBytes = std::max(largeBytes, bytes);
        sum.seconds += at - began;
        ++sum.count;
      }
      began = at;
    }
    CommunicationWork work;
    if (middle.count > 0 && large.count > 0) {
      // One small message and two of this size per answer.
      double a = middle.seconds / middle.count, b = large.seconds / large.count;
      work.perByte = std::max(0.0, b - a) / double(2 * (largeBytes - kMiddle));
      work.perMessage = std::max(0.0, a - 2 * double(kMiddle) * work.perByte) / 3;
    }
    return work;
  }

private:
  Status ask(Order what, uint64_t bytes) {
    uint64_t order[2] = {what, bytes};
    ZORSE_TRY(transport.send({instruction, step++}, peer, order, sizeof order));
    if (what != Answer)
      return Status::success();
    if (bytes > kSmall)
      ZORSE_TRY(transport.send({instruction, step++}, peer, data.data(), bytes));
    return transport.receive({instruction + 1, step}, peer, data.data(), bytes);
  }

  /// Mean time of small round trips at random times.
  Result<double> trips(double seconds) {
    std::uniform_real_distribution<double> pause(0.002, 0.05);
    double sum = 0, end = now() + seconds;
    int count = 0;
    for (; count < 8 || (now() < end && count < 1000); ++count) {
      std::this_thread::sleep_for(std::chrono::duration<double>(pause(random)));
      double begin = now();
      ZORSE_TRY(ask(Answer, kSmall));
      sum += now() - begin;
    }
    return sum / count;
  }

  Transport &transport;
  uint32_t peer, instruction;
  uint64_t step = 0;
  std::vector<char> data;
  std::minstd_rand random{7};
};

} // namespace

Result<CommunicationWork> zorse::runtime::measureCommunicationCost(Transport &transport,
                                                                   uint32_t me, uint32_t driver,
                                                                   uint32_t subject,
                                                                   uint32_t instruction,
                                                                   double seconds, int threads) {
  if (me == subject)
    return CommunicationCostMeasurement(transport, driver, instruction).serve(threads);
  Result<double> delay =
      CommunicationCostMeasurement(transport, subject, instruction).drive(seconds);
  if (delay.failed())
    return delay.error();
  CommunicationWork work;
  work.delay = *delay;
  return work;
}

Result<std::vector<CommunicationWork>>
zorse::runtime::measureCommunicationCostOfAll(ProcessGroup &group, Transport &transport,
                                              uint32_t instruction, double seconds,
                                              const std::vector<int> &threads) {
  uint32_t me = group.rank(), worldSize = group.size();
  CommunicationWork mine, next;
  // In every round, a rank measures with its predecessor as driver. A few ranks measure one at a
  // time, because they may share one machine. Many ranks measure together, but no rank is in two
  // pairs at the same time.
  uint32_t turns = worldSize <= 8 ? worldSize : 3;
  for (uint32_t turn = 0; turn < turns; ++turn) {
    Result<std::vector<std::string>> met =
        group.allGatherBytes("moving " + std::to_string(turn), "");
    if (met.failed())
      return met.error();
    for (uint32_t driver : {me, (me + worldSize - 1) % worldSize}) {
      uint32_t turnOfPair = worldSize <= 8                             ? driver
                            : driver + 1 == worldSize && worldSize % 2 ? 2
                                                                       : driver % 2;
      uint32_t subject = (driver + 1) % worldSize;
      if (turnOfPair != turn || worldSize < 2 || threads[subject] == 0)
        continue;
      Result<CommunicationWork> found = measureCommunicationCost(
          transport, me, driver, subject, instruction + 2 * (turn * worldSize + driver), seconds,
          threads[subject]);
      if (found.failed())
        return found.error();
      (me == subject ? mine : next) = *found;
    }
  }
  json row = {mine.perByte, mine.perMessage, next.delay};
  Result<std::vector<std::string>> all = group.allGatherBytes("moving measured", row.dump());
  if (all.failed())
    return all.error();
  std::vector<CommunicationWork> result(worldSize);
  for (uint32_t rank = 0; rank < worldSize; ++rank) {
    json found = json::parse((*all)[rank], nullptr, /*allow_exceptions=*/false);
    bool good = found.is_array() && found.size() == 3;
    for (size_t i = 0; good && i < 3; ++i)
      good = found[i].is_number() && found[i].get<double>() >= 0;
    if (!good)
      return userError("a rank published costs of messages that cannot be read; start every rank "
                       "with the same version of Zorse");
    result[rank].perByte = found[0];
    result[rank].perMessage = found[1];
    result[(rank + 1) % worldSize].delay = found[2];
  }
  return result;
}
