// Implements transfers and collectives as messages between pairs of ranks. All receives of an
// operation are posted before any send; all sends are posted before any wait. Forwarded data is
// forwarded part by part.
#include "zorse/runtime/GlooTransport.h"

#include "../Reduce.h"
#include "Reduction.h"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <list>
#include <sys/resource.h>

using namespace zorse::runtime;
using namespace zorse::runtime::gloo_transport;

namespace {

constexpr size_t kAllToAllMembers = 16; ///< with more members, all send their numbers to the first
                                        ///< one, which returns the sum

class GlooTransport final : public Transport {
public:
  GlooTransport(std::unique_ptr<Links> links, uint32_t rank, std::vector<uint32_t> sites)
      : links_(std::move(links)), messenger_{*links_, blocks_, rank, std::move(sites)},
        rank_(rank) {}

  std::string name() const override { return "gloo"; }
  Status send(Operation operation, uint32_t peer, const void *data, size_t bytes) override {
    Outbox out;
    ZORSE_TRY(messenger_.post(out, operation, 0, peer, data, bytes));
    return messenger_.finish(out);
  }

  void postReceive(Operation operation, uint32_t peer, void *data, size_t bytes) override {
    Inbox in;
    if (messenger_.postReceive(in, operation, 0, peer, data, bytes).failed() ||
        in.back().postAll().failed())
      return; // the receive reports the error
    std::lock_guard<std::mutex> lock(mutex_);
    ExpectedReceive &expected = expected_[{slotOf(operation, 0), peer}];
    expected.data = data;
    expected.bytes = bytes;
    expected.message = std::move(in);
  }

  bool gainsFromExpecting() const override { return true; }

  Status receive(Operation operation, uint32_t peer, void *data, size_t bytes) override {
    Inbox in;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (auto found = expected_.find({slotOf(operation, 0), peer}); found != expected_.end()) {
        if (found->second.data != data || found->second.bytes != bytes)
          return internalError("instruction " + std::to_string(operation.instruction) +
                               " was expected elsewhere or with another size");
        in = std::move(found->second.message);
        expected_.erase(found);
      }
    }
    if (in.empty()) {
      ZORSE_TRY(messenger_.postReceive(in, operation, 0, peer, data, bytes));
      ZORSE_TRY(in.back().postAll());
    }
    return in.back().finish();
  }

  Status allGather(Operation operation, const AllGatherArguments &a) override {
    return gather(operation, 0, a);
  }

  Status reduceScatter(Operation operation, const ReduceScatterArguments &a) override {
    return gloo_transport::reduceScatter(messenger_, operation, a);
  }

  Status allReduce(Operation operation, const AllReduceArguments &a) override {
    size_t element = bytesOf(a.type), bytes = size_t(a.count) * element;
    if (bytes <= kInlineBytes)
      return a.members.size() <= kAllToAllMembers ? sumByAll(operation, a, bytes)
                                                  : sumByFirst(operation, a, bytes);
    // Every rank sums one part and sends the result to all others.
    AllGatherArguments show;
    show.elementBytes = element;
    show.full = a.data;
    ReduceScatterArguments sum;
    sum.type = a.type;
    sum.full = a.data;
    int64_t members = int64_t(a.members.size());
    for (int64_t m = 0; m < members; ++m) {
      sum.shards.push_back({a.members[m], a.count * m / members, a.count * (m + 1) / members});
      sum.terms.push_back({a.members[m], 0, a.count});
    }
    show.shards = sum.shards;
    show.reads = sum.terms;
    for (const Shard &shard : sum.shards)
      if (shard.device == rank_)
        show.shard = sum.shard = static_cast<std::byte *>(a.data) + shard.begin * element;
    ZORSE_TRY(gloo_transport::reduceScatter(messenger_, operation, sum));
    return gather(operation, kSecondPhase, show);
  }

  uint64_t moved() const override { return links_->moved(); }

  std::vector<UnresponsivePeer> unresponsive() const override { return links_->unresponsive(); }

  void abort(const Error &why) override { links_->fail(why); }

private:
  /// Who passes shard number `index` of `owner` to `reader`: the owner itself, or, at another site,
  /// one of its readers there, which gets it from the owner. So every shard crosses between two
  /// sites once.
  uint32_t sourceOf(uint32_t reader, uint32_t owner, size_t index,
                    const std::vector<uint32_t> &readers) const {
    if (messenger_.site(reader) == messenger_.site(owner))
      return owner;
    std::vector<uint32_t> there;
    for (uint32_t candidate : readers)
      if (messenger_.site(candidate) == messenger_.site(reader))
        there.push_back(candidate);
    std::sort(there.begin(), there.end());
    uint32_t relay = there[index % there.size()];
    return relay == reader ? owner : relay;
  }

  Status gather(Operation operation, uint32_t firstMessage, const AllGatherArguments &a) {
    struct RelayedShard {
      Incoming *from;
      const std::byte *data;
      size_t bytes;
      uint32_t message;
      std::vector<uint32_t> readers;
    };
    Inbox in;
    Outbox out;
    std::vector<RelayedShard> relayed;
    ZORSE_TRY(Messenger::count(operation, a.shards.size()));
    const Held held = heldBy(rank_, a);
    auto place = [&](const Shard &shard) {
      return static_cast<std::byte *>(a.full) + size_t(held.whole.place(shard)) * a.elementBytes;
    };
    auto bytes = [&](const Shard &shard) { return size_t(shard.size()) * a.elementBytes; };
    auto readersFrom = [&](uint32_t source, size_t index, const std::vector<uint32_t> &readers) {
      const uint32_t owner = a.shards[index].device;
      std::vector<uint32_t> served;
      for (uint32_t reader : readers)
        if (reader != owner && reader != source &&
            sourceOf(reader, owner, index, readers) == source)
          served.push_back(reader);
      return served;
    };

    for (size_t i = 0; i < a.shards.size(); ++i) {
      const Shard &shard = a.shards[i];
      if (shard.device == rank_ || shard.empty() || !held.whole.has(shard))
        continue;
      uint32_t message = firstMessage + uint32_t(i);
      // It comes from its owner, and to all others here, too.
      const bool near = messenger_.site(shard.device) == messenger_.site(rank_);
      const std::vector<uint32_t> readers = near ? std::vector<uint32_t>()
                                                 : holdersOf(a.reads, shard);
      ZORSE_TRY(messenger_.postReceive(in, operation, message,
                                       sourceOf(rank_, shard.device, i, readers), place(shard),
                                       bytes(shard)));
      ZORSE_TRY(in.back().postAll());
      if (std::vector<uint32_t> onward = readersFrom(rank_, i, readers); !onward.empty())
        relayed.push_back({&in.back(), place(shard), bytes(shard), message, std::move(onward)});
    }
    for (size_t i = 0; i < a.shards.size(); ++i) {
      const Shard &shard = a.shards[i];
      if (shard.device != rank_ || shard.empty())
        continue;
      const std::byte *from = static_cast<const std::byte *>(a.shard) +
                              size_t(held.shards.place(shard)) * a.elementBytes;
      for (uint32_t reader : readersFrom(rank_, i, holdersOf(a.reads, shard)))
        ZORSE_TRY(messenger_.post(out, operation, firstMessage + uint32_t(i), reader, from,
                                  bytes(shard)));
      if (held.whole.has(shard) && place(shard) != from)
        std::memcpy(place(shard), from, bytes(shard));
    }
    for (RelayedShard &relay : relayed) {
      ZORSE_TRY(relay.from->awaitHead());
      std::vector<Outgoing *> onward;
      for (uint32_t reader : relay.readers) {
        ZORSE_TRY(
            messenger_.compose(out, operation, relay.message, reader, relay.data, relay.bytes));
        onward.push_back(&out.back());
        ZORSE_TRY(onward.back()->begin());
      }
      for (size_t part = 0; part < relay.from->chunks(); ++part) {
        ZORSE_TRY(relay.from->await(part));
        for (Outgoing *message : onward)
          ZORSE_TRY(message->offer(part));
      }
    }
    for (Incoming &message : in)
      if (std::none_of(relayed.begin(), relayed.end(),
                       [&](const RelayedShard &relay) { return relay.from == &message; }))
        ZORSE_TRY(message.finish());
    return messenger_.finish(out);
  }

  /// Receives of an instruction's next all-reduce. They are posted when the previous one ends, into
  /// memory of the transport, so senders need no handshake.
  struct PostedReceives {
    std::vector<uint32_t> members;
    uint64_t calls = 0; ///< calls of the instruction; used as the step in message slots, because
                        ///< the next step with this instruction is unknown
    std::unique_ptr<Inbox> in;
  };

  Status postNext(uint32_t instruction, PostedReceives &posted) {
    posted.in = std::make_unique<Inbox>();
    for (uint32_t member : posted.members)
      if (member != rank_) {
        ZORSE_TRY(
            messenger_.postReceive(*posted.in, {instruction, posted.calls}, 0, member, nullptr, 0));
        ZORSE_TRY(posted.in->back().begin());
      }
    return Status::success();
  }

  /// Small all-reduce: every rank sends its numbers to all others and adds them.
  Status sumByAll(Operation operation, const AllReduceArguments &a, size_t bytes) {
    PostedReceives *posted;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      posted = &posted_[operation.instruction]; // the reference stays valid; one thread serves an
                                                // instruction
    }
    if (posted->calls == 0)
      posted->members = a.members;
    if (posted->members != a.members)
      return internalError("instruction " + std::to_string(operation.instruction) +
                           " sums over other members than before");
    if (!posted->in)
      ZORSE_TRY(postNext(operation.instruction, *posted));
    Outbox out;
    for (uint32_t member : a.members)
      if (member != rank_)
        ZORSE_TRY(
            messenger_.post(out, {operation.instruction, posted->calls}, 0, member, a.data, bytes));
    std::vector<const void *> addends;
    auto message = posted->in->begin();
    for (uint32_t member : a.members) {
      if (member == rank_) {
        addends.push_back(a.data);
        continue;
      }
      ZORSE_TRY(message->awaitHead(bytes));
      addends.push_back(message++->inlined());
    }
    if (bytes > 0)
      rankedSum(a.type, a.data, addends, a.count); // the sent data was copied
    ZORSE_TRY(messenger_.finish(out));
    ++posted->calls;
    if (postNext(operation.instruction, *posted).failed()) // a peer may already have left; this
                                                           // matters only if the instruction runs
                                                           // again
      posted->in.reset();
    return Status::success();
  }

  /// Small all-reduce with many members: the first member adds.
  Status sumByFirst(Operation operation, const AllReduceArguments &a, size_t bytes) {
    Inbox in;
    Outbox out;
    uint32_t first = a.members[0];
    if (rank_ != first) {
      ZORSE_TRY(messenger_.postReceive(in, operation, kSecondPhase, first, a.data, bytes));
      ZORSE_TRY(in.back().begin());
      ZORSE_TRY(messenger_.post(out, operation, 0, first, a.data, bytes));
      ZORSE_TRY(messenger_.finish(out));
      return in.back().awaitHead();
    }
    std::vector<const void *> addends{a.data};
    for (size_t m = 1; m < a.members.size(); ++m) {
      ZORSE_TRY(messenger_.postReceive(in, operation, 0, a.members[m], nullptr, bytes));
      ZORSE_TRY(in.back().begin());
      addends.push_back(in.back().inlined());
    }
    for (Incoming &message : in)
      ZORSE_TRY(message.awaitHead());
    if (bytes > 0)
      rankedSum(a.type, a.data, addends, a.count);
    for (size_t m = 1; m < a.members.size(); ++m)
      ZORSE_TRY(messenger_.post(out, operation, kSecondPhase, a.members[m], a.data, bytes));
    return messenger_.finish(out);
  }

  std::unique_ptr<Links> links_;
  Blocks blocks_;
  Messenger messenger_;
  const uint32_t rank_;

  struct ExpectedReceive {
    void *data = nullptr;
    size_t bytes = 0;
    Inbox message;
  };
  std::mutex mutex_;
  std::map<uint32_t, PostedReceives> posted_; ///< key: instruction
  /// Pre-posted receives that were not called yet; key: slot and peer.
  std::map<std::pair<uint64_t, uint32_t>, ExpectedReceive> expected_;
};

/// Makes a write to a connection of a dead peer an error instead of a fatal signal.
void ignoreBrokenPipes() {
  struct sigaction now = {};
  if (sigaction(SIGPIPE, nullptr, &now) == 0 && now.sa_handler == SIG_DFL) {
    now.sa_handler = SIG_IGN;
    sigaction(SIGPIPE, &now, nullptr);
  }
}

/// Raises the soft limit of descriptors: one or two connections per peer may exceed it.
void allowDescriptors(size_t peers) {
  rlimit limit = {};
  rlim_t wanted = rlim_t(peers) * 20 + 512;
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < wanted) {
    limit.rlim_cur = std::min(limit.rlim_max, wanted);
    setrlimit(RLIMIT_NOFILE, &limit);
  }
}

} // namespace

Result<std::unique_ptr<Transport>> zorse::runtime::makeGlooTransport(ProcessGroup &group,
                                                                     const GlooOptions &options) {
  ignoreBrokenPipes();
  allowDescriptors(group.size());
  Result<std::map<uint32_t, Connections>> connections = connectRanks(group, options);
  if (connections.failed())
    return connections.error();
  Result<std::unique_ptr<Links>> links = Links::create(options, std::move(*connections));
  if (links.failed())
    return links.error();
  return std::unique_ptr<Transport>(
      std::make_unique<GlooTransport>(std::move(*links), group.rank(), options.nodes));
}
