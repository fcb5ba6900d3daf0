#include "Reduction.h"

#include "../Reduce.h"

#include <algorithm>
#include <thread>

using namespace zorse::runtime;
using namespace zorse::runtime::gloo_transport;

namespace {

constexpr size_t kWindow = 4;          ///< parts of each contribution in flight
constexpr size_t kBytesPerRounded = 2; ///< bytes in memory per byte of a rounded term

/// One stage of the sum of one shard at this rank. Messages have `bytes` bytes: if terms are
/// rounded, those of bf16.
class Sum {
public:
  Sum(Messenger &messenger, NumberType type, bool rounds, size_t bytes, std::byte *target)
      : messenger_(messenger), type_(type), rounds_(rounds), target_(target), bytes_(bytes),
        parts_(partsOf(bytes)) {}

  ~Sum() {
    in_.clear(); // no message uses the blocks any more
    out_.clear();
    for (Source &source : sources_)
      giveBack(source.ring);
    giveBack(ring_);
  }

  void addLocal(const std::byte *data) { sources_.emplace_back().local = data; }

  /// Adds an addend that is received from a peer, and posts its receives.
  Status addRemote(Operation operation, uint32_t message, uint32_t peer) {
    ZORSE_TRY(messenger_.postReceive(in_, operation, message, peer, nullptr, bytes_));
    Source &source = sources_.emplace_back();
    source.remote = &in_.back();
    fill(source.ring);
    ZORSE_TRY(source.remote->begin());
    for (size_t part = 0; part < source.ring.size(); ++part)
      ZORSE_TRY(source.remote->post(part, source.ring[part].get()));
    return Status::success();
  }

  /// Sends the sum to a peer instead of writing it to the caller's memory.
  Status passOn(Operation operation, uint32_t message, uint32_t peer) {
    if (parts_ == 0)
      ring_.push_back(messenger_.blocks.takePart());
    else
      fill(ring_);
    return messenger_.compose(out_, operation, message, peer, ring_[0].get(), bytes_);
  }

  bool dependsOnStages() const { return hasPartial || !out_.empty(); }

  Status run() {
    std::vector<const void *> addends(sources_.size());
    for (Source &source : sources_)
      if (source.remote)
        ZORSE_TRY(source.remote->awaitHead());
    Outgoing *next = out_.empty() ? nullptr : &out_.back();
    if (parts_ == 0) {
      for (size_t s = 0; s < sources_.size(); ++s)
        addends[s] = sources_[s].remote ? sources_[s].remote->inlined() : sources_[s].local;
      add(next ? ring_[0].get() : target_, addends, bytes_);
      if (!next)
        return Status::success();
      ZORSE_TRY(next->begin());
      return next->finish();
    }
    if (next)
      ZORSE_TRY(next->begin());
    for (size_t part = 0; part < parts_; ++part)
      ZORSE_TRY(sumPart(part, addends, next));
    return next ? next->finishFrom(parts_ - std::min(parts_, kWindow)) : Status::success();
  }

  bool hasPartial = false; ///< the first addend is the sum of an earlier stage

private:
  struct Source {
    const std::byte *local = nullptr;
    Incoming *remote = nullptr;
    std::vector<Blocks::Block> ring;
  };

  /// \param bytes  of an addend in a message
  void add(std::byte *target, const std::vector<const void *> &addends, size_t bytes) const {
    if (!rounds_)
      return rankedSum(type_, target, addends, int64_t(bytes / bytesOf(type_)));
    std::vector<RoundedTerm> terms;
    terms.reserve(sources_.size());
    for (size_t s = 0; s < sources_.size(); ++s)
      terms.push_back({addends[s], /*isBf16=*/sources_[s].remote != nullptr});
    sumOfRounded(reinterpret_cast<float *>(target), terms, int64_t(bytes / sizeof(uint16_t)));
  }

  Status sumPart(size_t part, std::vector<const void *> &addends, Outgoing *next) {
    const size_t offset = part * partBytes(bytes_) * (rounds_ ? kBytesPerRounded : 1);
    for (size_t s = 0; s < sources_.size(); ++s) {
      Source &source = sources_[s];
      if (source.remote)
        ZORSE_TRY(source.remote->await(part));
      addends[s] = source.remote ? source.ring[part % kWindow].get() : source.local + offset;
    }
    if (next && part >= kWindow)
      ZORSE_TRY(next->await(part - kWindow)); // its block is free again
    std::byte *target = next ? ring_[part % kWindow].get() : target_ + offset;
    add(target, addends, bytesOfPart(bytes_, part));
    if (next)
      ZORSE_TRY(next->offer(part, target));
    if (part + kWindow < parts_)
      for (Source &source : sources_)
        if (source.remote)
          ZORSE_TRY(source.remote->post(part + kWindow, source.ring[part % kWindow].get()));
    return Status::success();
  }

  void fill(std::vector<Blocks::Block> &ring) {
    for (size_t i = 0; i < std::min(kWindow, parts_); ++i)
      ring.push_back(messenger_.blocks.takePart());
  }
  void giveBack(std::vector<Blocks::Block> &ring) {
    for (Blocks::Block &block : ring)
      messenger_.blocks.givePart(std::move(block));
  }

  Messenger &messenger_;
  NumberType type_;
  const bool rounds_; ///< adds bf16 terms in f32
  std::byte *target_;
  size_t bytes_, parts_;
  Inbox in_;
  Outbox out_;                      ///< to the next stage
  std::vector<Blocks::Block> ring_; ///< sums in flight to the next stage
  std::vector<Source> sources_;     ///< in the order of summation
};

/// A term that is rounded to bf16 part by part, while it is sent.
class RoundedMessage {
public:
  RoundedMessage(Messenger &messenger, const float *term, int64_t count)
      : messenger_(messenger), term_(term), bytes_(size_t(count) * sizeof(uint16_t)),
        parts_(partsOf(bytes_)) {}

  ~RoundedMessage() {
    out_.clear(); // no message uses the blocks any more
    for (Blocks::Block &block : ring_)
      messenger_.blocks.givePart(std::move(block));
  }

  /// Sends the first parts. Does not wait.
  Status begin(Operation operation, uint32_t message, uint32_t peer) {
    for (size_t i = 0; i < std::max<size_t>(1, std::min(kWindow, parts_)); ++i)
      ring_.push_back(messenger_.blocks.takePart());
    if (parts_ == 0)
      round(ring_[0].get(), 0, bytes_);
    ZORSE_TRY(messenger_.compose(out_, operation, message, peer, ring_[0].get(), bytes_));
    ZORSE_TRY(out_.back().begin());
    for (size_t part = 0; part < std::min(kWindow, parts_); ++part)
      ZORSE_TRY(offer(part));
    return Status::success();
  }

  bool hasMore() const { return parts_ > kWindow; }

  /// Sends the other parts, each when the receiver has the one whose memory it takes.
  Status run() {
    for (size_t part = kWindow; part < parts_; ++part) {
      ZORSE_TRY(out_.back().await(part - kWindow));
      ZORSE_TRY(offer(part));
    }
    return Status::success();
  }

  Status finish() { return out_.back().finishFrom(parts_ - std::min(parts_, kWindow)); }

private:
  Status offer(size_t part) {
    std::byte *block = ring_[part % kWindow].get();
    round(block, part * partBytes(bytes_), bytesOfPart(bytes_, part));
    return out_.back().offer(part, block);
  }
  void round(std::byte *block, size_t offset, size_t bytes) const {
    const size_t first = offset / sizeof(uint16_t), count = bytes / sizeof(uint16_t);
    roundToBf16(reinterpret_cast<uint16_t *>(block), term_ + first, int64_t(count));
  }

  Messenger &messenger_;
  const float *term_;
  const size_t bytes_, parts_;
  Outbox out_;
  std::vector<Blocks::Block> ring_; ///< rounded parts in flight
};

/// Sends long rounded terms while it lives, each in its own thread: a term that waits for its
/// receiver must not keep back another, for which that receiver may wait.
class RoundedSends {
public:
  explicit RoundedSends(std::list<RoundedMessage> &messages) : results_(messages.size()) {
    size_t at = 0;
    for (RoundedMessage &message : messages) {
      Status &result = results_[at++];
      if (message.hasMore())
        threads_.emplace_back([&message, &result] { result = message.run(); });
    }
  }
  ~RoundedSends() { (void)join(); }
  Status join() {
    for (std::thread &thread : threads_)
      thread.join();
    threads_.clear();
    for (const Status &result : results_)
      ZORSE_TRY(result);
    return Status::success();
  }

private:
  std::vector<Status> results_;
  std::vector<std::thread> threads_;
};

/// Runs every sum in its own thread. Stages of one shard wait for stages at other ranks, so stages
/// in one thread could wait for each other in a cycle.
Status runTogether(std::list<Sum> &sums) {
  std::vector<Status> results(sums.size());
  std::vector<std::thread> threads;
  size_t at = 0;
  for (Sum &sum : sums) {
    Status &result = results[at++];
    if (at < sums.size())
      threads.emplace_back([&sum, &result] { result = sum.run(); });
    else
      result = sum.run();
  }
  for (std::thread &thread : threads)
    thread.join();
  for (const Status &result : results)
    if (result.failed())
      return result;
  return Status::success();
}

} // namespace

std::vector<ReductionHop> zorse::runtime::gloo_transport::hopsOf(const Messenger &messenger,
                                                                 const ReduceScatterArguments &a,
                                                                 size_t shard) {
  uint32_t owner = a.shards[shard].device, home = messenger.site(owner);
  const std::vector<uint32_t> contributors = holdersOf(a.terms, a.shards[shard]);
  std::vector<std::vector<uint32_t>> runs; ///< of contributors at one site
  for (uint32_t contributor : contributors) {
    if (runs.empty() || messenger.site(runs.back()[0]) != messenger.site(contributor))
      runs.emplace_back();
    runs.back().push_back(contributor);
  }
  auto away = [&](const std::vector<uint32_t> &run) { return messenger.site(run[0]) != home; };
  auto collector = [&](const std::vector<uint32_t> &run) { return run[shard % run.size()]; };
  // Half types would have to be sent as f32, so they are not split.
  // So would sums of rounded terms.
  const bool single = (a.type == NumberType::F32 || a.type == NumberType::F64) &&
                      !roundsTerms(a, contributors.size());
  if (!single || std::none_of(runs.begin(), runs.end(), away))
    return {{owner, contributors}};

  // Alternatives: the first run is summed at its site and the others send their contributions
  // individually, or every run adds to the sum of the previous ones.
  bool first = away(runs[0]) && runs[0].size() > 1;
  size_t crossings = first           ? 1
                     : away(runs[0]) ? runs[0].size()
                                     : 0,
         chained = runs.size() - 1 + away(runs.back());
  for (size_t r = 1; r < runs.size(); ++r)
    crossings += away(runs[r]) ? runs[r].size() : 0;
  std::vector<ReductionHop> hops;
  // A tie between two sites: odd and even shards use opposite directions of the link. With more, a
  // chain would load the links of other sites.
  const auto far = std::find_if(runs.begin(), runs.end(), away);
  const bool two = std::all_of(far, runs.end(), [&](const std::vector<uint32_t> &run) {
    return !away(run) || messenger.site(run[0]) == messenger.site((*far)[0]);
  });
  if (chained < crossings || (chained == crossings && two && shard % 2 == 1)) {
    for (const std::vector<uint32_t> &run : runs)
      hops.push_back({&run == &runs.back() && !away(run) ? owner : collector(run), run});
    if (hops.back().rank != owner)
      hops.push_back({owner, {}});
    return hops;
  }
  size_t from = 0;
  if (first) {
    hops.push_back({collector(runs[0]), runs[0]});
    from = runs[0].size();
  }
  hops.push_back({owner, {contributors.begin() + from, contributors.end()}});
  return hops;
}

Status zorse::runtime::gloo_transport::reduceScatter(Messenger &messenger, Operation operation,
                                                     const ReduceScatterArguments &a) {
  ZORSE_TRY(Messenger::count(operation, a.shards.size()));
  size_t element = bytesOf(a.type);
  const Held held = heldBy(messenger.rank, a);
  auto term = [&](size_t i) {
    return static_cast<const std::byte *>(a.full) + size_t(held.whole.place(a.shards[i])) * element;
  };
  auto target = [&](size_t i) {
    return static_cast<std::byte *>(a.shard) + size_t(held.shards.place(a.shards[i])) * element;
  };
  auto bytesIn = [&](size_t i) { return size_t(a.shards[i].size()) * element; };
  std::vector<std::vector<ReductionHop>> hops(a.shards.size());
  std::vector<uint8_t> rounds(a.shards.size()); // by shard: its terms are rounded
  for (size_t i = 0; i < a.shards.size(); ++i)
    if (bytesIn(i) > 0) {
      hops[i] = hopsOf(messenger, a, i);
      rounds[i] = roundsTerms(a, holdersOf(a.terms, a.shards[i]).size());
    }
  auto bytesSent = [&](size_t i) { return bytesIn(i) / (rounds[i] ? kBytesPerRounded : 1); };

  // All receives are posted before any send, in the same order of shards and stages at both ends.
  std::list<Sum> sums;
  for (size_t i = 0; i < a.shards.size(); ++i)
    for (size_t s = 0; s < hops[i].size(); ++s) {
      const ReductionHop &hop = hops[i][s];
      if (hop.rank != messenger.rank)
        continue;
      bool last = s + 1 == hops[i].size();
      Sum &sum =
          sums.emplace_back(messenger, a.type, rounds[i], bytesSent(i), last ? target(i) : nullptr);
      if (s > 0) {
        ZORSE_TRY(sum.addRemote(operation, kPartialSums + uint32_t(i), hops[i][s - 1].rank));
        sum.hasPartial = true;
      }
      for (uint32_t contributor : hop.contributors) {
        if (contributor == messenger.rank)
          sum.addLocal(term(i));
        else
          ZORSE_TRY(sum.addRemote(operation, uint32_t(i), contributor));
      }
      if (!last)
        ZORSE_TRY(sum.passOn(operation, kPartialSums + uint32_t(i), hops[i][s + 1].rank));
    }
  Outbox out;
  std::list<RoundedMessage> rounded;
  for (size_t i = 0; i < a.shards.size(); ++i)
    for (const ReductionHop &hop : hops[i]) {
      if (hop.rank == messenger.rank || std::find(hop.contributors.begin(), hop.contributors.end(),
                                                  messenger.rank) == hop.contributors.end())
        continue;
      if (!rounds[i]) {
        ZORSE_TRY(messenger.post(out, operation, uint32_t(i), hop.rank, term(i), bytesIn(i)));
        continue;
      }
      rounded.emplace_back(messenger, reinterpret_cast<const float *>(term(i)), a.shards[i].size());
      ZORSE_TRY(rounded.back().begin(operation, uint32_t(i), hop.rank));
    }
  RoundedSends sends(rounded);

  if (std::any_of(sums.begin(), sums.end(), [](const Sum &sum) { return sum.dependsOnStages(); })) {
    ZORSE_TRY(runTogether(sums));
  } else {
    for (Sum &sum : sums)
      ZORSE_TRY(sum.run());
  }
  ZORSE_TRY(sends.join());
  for (RoundedMessage &message : rounded)
    ZORSE_TRY(message.finish());
  return messenger.finish(out);
}
