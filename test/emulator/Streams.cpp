#include "Streams.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <utility>

using namespace zorse::emulator;

namespace {

/// By actor (a stream or a host thread): the number of its accesses that are known to be complete.
using Clock = std::vector<uint64_t>;

void join(Clock &clock, const Clock &other) {
  clock.resize(std::max(clock.size(), other.size()));
  for (size_t i = 0; i < other.size(); ++i)
    clock[i] = std::max(clock[i], other[i]);
}
uint64_t at(const Clock &clock, size_t actor) { return actor < clock.size() ? clock[actor] : 0; }

struct Touch {
  size_t actor = 0;
  uint64_t tick = 0;
  std::string what;
};
/// State of bytes with the same history: the last write, and the last read of every actor since
/// then.
struct Bytes {
  Touch write;
  std::vector<Touch> reads;
};

std::atomic<bool> leaving{false};         ///< skip work
thread_local double began = 0, until = 0; ///< times of the work that the thread executes

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}
void sleepUntil(double seconds) {
  std::this_thread::sleep_until(std::chrono::steady_clock::time_point() +
                                std::chrono::duration<double>(seconds));
}

struct Watch {
  std::mutex mutex; ///< guards all members, but not running work
  std::condition_variable changed;
  size_t actors = 1;                 ///< actor 0: the blocking stream
  uint64_t blocking = 0;             ///< its tick
  Clock anyHost;                     ///< the accesses that any host thread has waited for
  std::map<uintptr_t, Bytes> memory; ///< by first address; an entry extends to the next one
  uint64_t seed = 0;
  double max = 0;
  double pace = 0; ///< seconds per byte
  bool threads = false;
  Mutation mutation = Mutation::None;
  uint64_t mutated = 0, counted[4] = {};
  std::vector<Stream *> streams,
      mutants; ///< mutants: created for Mutation::OtherStream, destroyed by the next mutate()

  /// Seconds of the accesses at the current pace.
  double timeOf(const std::vector<Access> &accesses) const {
    double seconds = 0;
    for (const Access &access : accesses)
      seconds += access.takesTime ? double(access.end - access.begin) * pace : 0;
    return seconds;
  }
  bool hits(Mutation sort) { return counted[size_t(sort)]++ == mutated && mutation == sort; }
};
Watch &watch() {
  static Watch *all = new Watch; // outlives the threads of streams
  return *all;
}

struct HostThread {
  size_t actor = 0;
  Clock clock;
};
/// The mutex must be held.
HostThread &hostThread() {
  thread_local HostThread thread;
  if (thread.actor == 0)
    thread.actor = watch().actors++;
  return thread;
}

/// Splits the memory map at an address.
std::map<uintptr_t, Bytes>::iterator split(uintptr_t address) {
  auto &memory = watch().memory;
  auto next = memory.lower_bound(address);
  if (next != memory.end() && next->first == address)
    return next;
  Bytes before = next == memory.begin() ? Bytes() : std::prev(next)->second;
  return memory.emplace_hint(next, address, std::move(before));
}

/// Checks an access by `actor` with `clock`. The mutex must be held.
std::string check(size_t actor, const Clock &clock, const std::string &what, const Access &access) {
  if (access.begin >= access.end)
    return "";
  std::string found;
  auto first = split(access.begin), end = split(access.end);
  for (auto it = first; it != end; ++it) {
    Bytes &bytes = it->second;
    auto ordered = [&](const Touch &other, const char *verb) {
      if (!found.empty() || other.tick == 0 || other.actor == actor ||
          at(clock, other.actor) >= other.tick)
        return;
      char place[32];
      std::snprintf(place, sizeof place, "%#zx", size_t(it->first));
      found = what + (access.write ? " writes" : " reads") + " bytes at " + place + " that " +
              other.what + " " + verb + ", and nothing orders the two";
    };
    ordered(bytes.write, "writes");
    if (access.write) {
      for (const Touch &read : bytes.reads)
        ordered(read, "reads");
      bytes.reads.clear();
      bytes.write = {actor, at(clock, actor), what};
      continue;
    }
    auto mine = std::find_if(bytes.reads.begin(), bytes.reads.end(),
                             [&](const Touch &read) { return read.actor == actor; });
    if (mine == bytes.reads.end())
      bytes.reads.push_back({actor, at(clock, actor), what});
    else
      *mine = {actor, at(clock, actor), what};
  }
  return found;
}

} // namespace

struct zorse::emulator::StreamEvent {
  Clock clock;
  uint64_t recorded = 0, come = 0; ///< number of records, and number of completed records
  double seconds = 0;
};

struct zorse::emulator::Stream {
  size_t actor = 0;
  Clock clock;
  // Only for a stream with a thread.
  double time = 0; ///< at a pace: end of the work that its thread has done
  std::deque<std::function<std::string()>> work;
  uint64_t put = 0, done = 0;
  bool closing = false;
  std::atomic<bool> leftOut{false}; ///< work that is put on it from now on is skipped
  std::string found;                ///< findings of its thread
  std::mt19937_64 random; // NOLINT(bugprone-random-generator-seed): delays are to be the same again
  std::thread thread;

  void run() {
    Watch &all = watch();
    std::unique_lock<std::mutex> lock(all.mutex);
    for (;;) {
      all.changed.wait(lock, [&] { return closing || !work.empty(); });
      if (work.empty())
        return;
      std::function<std::string()> next = std::move(work.front());
      work.pop_front();
      // Rarely long, so that work that should wait is often overtaken.
      const double pause = random() % 4 == 0 ? all.max * double(random() % 1024) / 1024 : 0;
      lock.unlock();
      std::this_thread::sleep_for(std::chrono::duration<double>(pause));
      std::string finding = next();
      lock.lock();
      if (found.empty())
        found = std::move(finding);
      ++done;
      all.changed.notify_all();
    }
  }

  /// Runs the work now, or gives it to the thread. The mutex must be held.
  std::string give(std::unique_lock<std::mutex> &lock, std::function<std::string()> what) {
    if (!thread.joinable()) {
      lock.unlock();
      std::string finding = what();
      lock.lock();
      return finding;
    }
    work.push_back(std::move(what));
    ++put;
    watch().changed.notify_all();
    return found;
  }

  void drain(std::unique_lock<std::mutex> &lock) {
    watch().changed.wait(lock, [&] { return done == put; });
  }
};

Stream *zorse::emulator::makeStream() {
  Watch &all = watch();
  std::lock_guard<std::mutex> lock(all.mutex);
  auto *made = new Stream;
  made->actor = all.actors++;
  made->random.seed(all.seed * 7919 + made->actor);
  if (all.threads)
    made->thread = std::thread([made] { made->run(); });
  all.streams.push_back(made);
  return made;
}

void zorse::emulator::destroyStream(Stream *stream) {
  Watch &all = watch();
  {
    std::unique_lock<std::mutex> lock(all.mutex);
    stream->drain(lock);
    stream->closing = true;
    all.changed.notify_all();
    all.streams.erase(std::find(all.streams.begin(), all.streams.end(), stream));
  }
  if (stream->thread.joinable())
    stream->thread.join();
  delete stream;
}

std::string zorse::emulator::put(Stream *stream, const std::string &what,
                                 const std::vector<Access> &accesses,
                                 std::function<std::string()> run, double min) {
  if (leavesOut(stream))
    return "";
  Watch &all = watch();
  std::unique_lock<std::mutex> lock(all.mutex);
  std::string found;
  auto add = [&](const std::string &finding) {
    if (found.empty())
      found = finding;
  };
  const double seconds = all.pace > 0 ? std::max(all.timeOf(accesses), min) : 0;
  if (!stream) {
    HostThread &host = hostThread();
    join(all.anyHost, host.clock);
    Clock clock = all.anyHost;
    clock.resize(std::max(clock.size(), size_t(1)));
    clock[0] = ++all.blocking;
    for (const Access &access : accesses)
      add(check(0, clock, what, access));
    lock.unlock();
    const double begin = now();
    add(run());
    sleepUntil(begin + seconds);
    return found;
  }
  if (all.hits(Mutation::OtherStream)) {
    const bool apart = stream->thread.joinable();
    lock.unlock();
    stream = makeStream(); // a stream that is never waited for and has no other work
    if (apart)
      runApart(stream);
    lock.lock();
    all.mutants.push_back(stream);
  }
  join(stream->clock, hostThread().clock);
  stream->clock.resize(std::max(stream->clock.size(), stream->actor + 1));
  stream->clock[0] = all.blocking;
  ++stream->clock[stream->actor];
  for (const Access &access : accesses)
    add(check(stream->actor, stream->clock, what, access));
  if (all.pace > 0)
    run = [stream, seconds, given = now(), work = std::move(run)] {
      began = std::max(stream->time, given);
      until = began + seconds;
      std::string finding = work();
      stream->time = until;
      sleepUntil(until);
      return finding;
    };
  add(stream->give(lock, std::move(run)));
  return found;
}

std::string zorse::emulator::synchronize(Stream *stream) {
  if (leavesOut(stream))
    return "";
  Watch &all = watch();
  std::unique_lock<std::mutex> lock(all.mutex);
  if (!stream)
    return "";
  stream->drain(lock);
  join(hostThread().clock, stream->clock);
  join(all.anyHost, stream->clock);
  return stream->found;
}

void zorse::emulator::waitForStreams(const Stream *only) {
  std::unique_lock<std::mutex> lock(watch().mutex);
  watch().changed.wait(lock, [only] {
    const std::vector<Stream *> &streams = watch().streams;
    return std::all_of(streams.begin(), streams.end(), [only](const Stream *stream) {
      return (only && stream != only) || stream->done == stream->put;
    });
  });
}

StreamEvent *zorse::emulator::makeEvent() { return new StreamEvent; }
void zorse::emulator::destroyEvent(StreamEvent *event) { delete event; }

std::string zorse::emulator::record(StreamEvent *event, Stream *stream) {
  if (stream && leaving) {
    stream->leftOut = true;
    event->seconds = now();
    return "";
  }
  Watch &all = watch();
  std::unique_lock<std::mutex> lock(all.mutex);
  if (stream && all.hits(Mutation::DropRecord))
    return "";
  const uint64_t generation = ++event->recorded;
  auto come = [event, generation, stream, given = now()] {
    std::lock_guard<std::mutex> inside(watch().mutex);
    event->come = std::max(event->come, generation);
    event->seconds = stream && watch().pace > 0 ? std::max(stream->time, given) : now();
    watch().changed.notify_all();
    return std::string();
  };
  if (!stream) {
    event->clock = all.anyHost;
    lock.unlock();
    return come();
  }
  join(stream->clock, hostThread().clock);
  event->clock = stream->clock;
  return stream->give(lock, come);
}

std::string zorse::emulator::wait(Stream *stream, StreamEvent *event) {
  if (leaving) {
    stream->leftOut = true;
    return "";
  }
  Watch &all = watch();
  std::unique_lock<std::mutex> lock(all.mutex);
  if (all.hits(Mutation::DropWait))
    return "";
  if (event->recorded == 0)
    return "a stream waits for an event that was never recorded";
  join(stream->clock, event->clock);
  const uint64_t generation = event->recorded;
  return stream->give(lock, [stream, event, generation] {
    std::unique_lock<std::mutex> inside(watch().mutex);
    watch().changed.wait(inside, [&] { return event->come >= generation; });
    stream->time = std::max(stream->time, event->seconds);
    return std::string();
  });
}

std::string zorse::emulator::synchronize(StreamEvent *event) {
  if (leaving)
    return "";
  Watch &all = watch();
  std::unique_lock<std::mutex> lock(all.mutex);
  if (event->recorded == 0)
    return "a host thread waits for an event that was never recorded";
  const uint64_t generation = event->recorded;
  const Clock clock = event->clock;
  all.changed.wait(lock, [&] { return event->come >= generation; });
  join(hostThread().clock, clock);
  join(all.anyHost, clock);
  for (Stream *stream : all.streams)
    if (!stream->found.empty())
      return stream->found;
  return "";
}

double zorse::emulator::secondsOf(StreamEvent *event) {
  std::lock_guard<std::mutex> lock(watch().mutex);
  return event->seconds;
}

std::string zorse::emulator::accessByStream(Stream *stream, const std::string &what,
                                            const Access &access) {
  std::lock_guard<std::mutex> lock(watch().mutex);
  join(stream->clock, hostThread().clock);
  stream->clock.resize(std::max(stream->clock.size(), stream->actor + 1));
  stream->clock[0] = watch().blocking;
  ++stream->clock[stream->actor];
  return check(stream->actor, stream->clock, what, access);
}

std::string zorse::emulator::accessByHost(const Access &access) {
  std::lock_guard<std::mutex> lock(watch().mutex);
  HostThread &host = hostThread();
  host.clock.resize(std::max(host.clock.size(), host.actor + 1));
  host.clock[0] = watch().blocking;
  ++host.clock[host.actor];
  return check(host.actor, host.clock, "the host", access);
}

std::string zorse::emulator::forget(uintptr_t begin, uintptr_t end) {
  Watch &all = watch();
  std::lock_guard<std::mutex> lock(all.mutex);
  join(all.anyHost, hostThread().clock);
  Clock clock = all.anyHost;
  clock.resize(std::max(clock.size(), size_t(1)));
  clock[0] = all.blocking;
  std::string found = check(0, clock, "freeing memory", {begin, end, true});
  auto first = split(begin), last = split(end);
  all.memory.erase(first, last);
  split(begin)->second = {};
  return found;
}

void zorse::emulator::runApart(Stream *stream) {
  std::lock_guard<std::mutex> lock(watch().mutex);
  if (!stream->thread.joinable())
    stream->thread = std::thread([stream] { stream->run(); });
}

void zorse::emulator::runAtRandom(uint64_t seed, double max) {
  std::lock_guard<std::mutex> lock(watch().mutex);
  watch().threads = true;
  watch().seed = seed;
  watch().max = max;
}

void zorse::emulator::runAtPace(double bytesPerSecond) {
  std::lock_guard<std::mutex> lock(watch().mutex);
  watch().threads = true;
  watch().pace = 1 / bytesPerSecond;
}

double zorse::emulator::workBegan() { return began; }
void zorse::emulator::workLasts(double end) { until = end; }

void zorse::emulator::leaveWorkOut() { leaving = true; }

bool zorse::emulator::leavesOut(const Stream *stream) {
  return stream && stream->leftOut.load(std::memory_order_relaxed);
}

void zorse::emulator::mutate(Mutation mutation, uint64_t index) {
  for (Stream *stream : std::exchange(watch().mutants, {})) // their findings do not belong to the
                                                            // next mutant
    destroyStream(stream);
  std::lock_guard<std::mutex> lock(watch().mutex);
  watch().mutation = mutation;
  watch().mutated = index;
  std::fill(std::begin(watch().counted), std::end(watch().counted), 0);
}

uint64_t zorse::emulator::calls(Mutation mutation) {
  std::lock_guard<std::mutex> lock(watch().mutex);
  return watch().counted[size_t(mutation)];
}
