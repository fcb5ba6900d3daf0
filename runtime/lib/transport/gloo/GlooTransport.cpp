// Operations as messages between two ranks each. All receives of an operation are posted before anything is sent, and everything that is sent is offered before
// anything is waited for; what is forwarded is forwarded part by part.
#include "zorse/runtime/GlooTransport.h"

#include "../Reduce.h"
#include "Message.h"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <list>

using namespace zorse::runtime;
using namespace zorse::runtime::gloo_transport;

#define ZORSE_TRY(expression)                                                                                                                            \
  do {                                                                                                                                                   \
    if (Status zorseStatus = (expression); zorseStatus.failed())                                                                                         \
      return zorseStatus;                                                                                                                                \
  } while (false)

namespace {

constexpr uint32_t kSecondPhase = 0x8000; ///< number of the first message of an operation's second half
constexpr size_t kWindow = 4;             ///< parts of each contributor under way while sums are formed
constexpr size_t kAllToAllMembers = 16;   ///< more members send their numbers to the first one and get the sum back.

class GlooTransport final : public Transport {
public:
  GlooTransport(std::unique_ptr<Links> links, uint32_t rank, std::vector<uint32_t> sites) : links_(std::move(links)), rank_(rank), sites_(std::move(sites)) {}

  Status send(Operation operation, uint32_t peer, const void *data, size_t bytes) override {
    Outbox out;
    ZORSE_TRY(post(out, operation, 0, peer, data, bytes));
    return finish(out);
  }

  Status receive(Operation operation, uint32_t peer, void *data, size_t bytes) override {
    Inbox in;
    ZORSE_TRY(expect(in, operation, 0, peer, data, bytes));
    ZORSE_TRY(in.back().postAll());
    return in.back().finish();
  }

  Status allGather(Operation operation, const AllGatherArguments &a) override { return gather(operation, 0, a); }

  Status reduceScatter(Operation operation, const ReduceScatterArguments &a) override { return reduce(operation, a); }

  Status allReduce(Operation operation, const AllReduceArguments &a) override {
    size_t element = bytesOf(a.type), bytes = size_t(a.count) * element;
    if (bytes <= kInlineBytes)
      return a.members.size() <= kAllToAllMembers ? sumByAll(operation, a, bytes) : sumByFirst(operation, a, bytes);
    // Everybody sums a part and shows it to the others.
    AllGatherArguments show;
    show.elementBytes = element;
    show.readers = a.members;
    show.full = a.data;
    ReduceScatterArguments sum;
    sum.type = a.type;
    sum.contributors = a.members;
    sum.full = a.data;
    int64_t members = int64_t(a.members.size());
    for (int64_t m = 0; m < members; ++m)
      sum.shards.push_back({a.members[m], a.count * m / members, a.count * (m + 1) / members});
    show.shards = sum.shards;
    for (const Shard &shard : sum.shards)
      if (shard.device == rank_)
        show.shard = sum.shard = static_cast<std::byte *>(a.data) + shard.begin * element;
    ZORSE_TRY(reduce(operation, sum));
    return gather(operation, kSecondPhase, show);
  }

  Status broadcast(Operation operation, const BroadcastArguments &a) override {
    AllGatherArguments show;
    show.elementBytes = 1;
    show.shards = {{a.root, 0, int64_t(a.bytes)}};
    show.readers = a.members;
    show.full = a.data;
    show.shard = a.root == rank_ ? a.data : nullptr;
    return gather(operation, 0, show);
  }

  uint64_t moved() const override { return links_->moved(); }

  void abort(const Error &why) override { links_->fail(why); }

private:
  using Outbox = std::list<Outgoing>;
  using Inbox = std::list<Incoming>;

  Result<Link *> to(uint32_t peer) {
    if (links_->failed())
      return links_->failure().error();
    if (Link *link = links_->to(peer))
      return link;
    return internalError("rank " + std::to_string(rank_) + " is not connected to rank " + std::to_string(peer) + ", which its program needs");
  }

  /// A message is on its way; `data` stays readable until `finish`.
  Status post(Outbox &out, Operation operation, uint32_t message, uint32_t peer, const void *data, size_t bytes) {
    Result<Link *> link = to(peer);
    if (link.failed())
      return link.error();
    return out.emplace_back(*links_, blocks_, **link, slotOf(operation, message), data, bytes).offerAll();
  }

  Status expect(Inbox &in, Operation operation, uint32_t message, uint32_t peer, void *data, size_t bytes) {
    Result<Link *> link = to(peer);
    if (link.failed())
      return link.error();
    in.emplace_back(*links_, blocks_, **link, slotOf(operation, message), data, bytes);
    return Status::success();
  }

  Status finish(Outbox &out) {
    for (Outgoing &message : out)
      ZORSE_TRY(message.finish());
    return Status::success();
  }

  uint32_t site(uint32_t rank) const { return rank < sites_.size() ? sites_[rank] : 0; }

  /// Who passes shard number `index` of `owner` to `reader`: the owner itself, or, at another site, one of the readers there, which gets it from the owner. So
  /// every shard crosses between two sites once.
  uint32_t sourceOf(uint32_t reader, uint32_t owner, size_t index, const std::vector<uint32_t> &readers) const {
    if (site(reader) == site(owner))
      return owner;
    std::vector<uint32_t> there;
    for (uint32_t candidate : readers)
      if (site(candidate) == site(reader))
        there.push_back(candidate);
    std::sort(there.begin(), there.end());
    uint32_t relay = there[index % there.size()];
    return relay == reader ? owner : relay;
  }

  Status gather(Operation operation, uint32_t firstMessage, const AllGatherArguments &a) {
    struct Relayed {
      Incoming *from;
      const std::byte *data;
      size_t bytes;
      uint32_t message;
      std::vector<uint32_t> readers;
    };
    Inbox in;
    Outbox out;
    std::vector<Relayed> relayed;
    bool reads = std::find(a.readers.begin(), a.readers.end(), rank_) != a.readers.end();
    auto place = [&](const Shard &shard) { return static_cast<std::byte *>(a.full) + shard.begin * int64_t(a.elementBytes); };
    auto bytes = [&](const Shard &shard) { return size_t(shard.end - shard.begin) * a.elementBytes; };
    auto eachReaderFrom = [&](uint32_t source, size_t index, auto &&act) {
      const Shard &shard = a.shards[index];
      for (uint32_t reader : a.readers)
        if (reader != shard.device && reader != source && sourceOf(reader, shard.device, index, a.readers) == source)
          act(reader);
    };

    for (size_t i = 0; i < a.shards.size(); ++i) {
      const Shard &shard = a.shards[i];
      if (!reads || shard.device == rank_ || bytes(shard) == 0)
        continue;
      uint32_t message = firstMessage + uint32_t(i);
      ZORSE_TRY(expect(in, operation, message, sourceOf(rank_, shard.device, i, a.readers), place(shard), bytes(shard)));
      ZORSE_TRY(in.back().postAll());
      Relayed relay{&in.back(), place(shard), bytes(shard), message, {}};
      eachReaderFrom(rank_, i, [&](uint32_t reader) { relay.readers.push_back(reader); });
      if (!relay.readers.empty())
        relayed.push_back(std::move(relay));
    }
    for (size_t i = 0; i < a.shards.size(); ++i) {
      const Shard &shard = a.shards[i];
      if (shard.device != rank_ || bytes(shard) == 0)
        continue;
      Status status;
      eachReaderFrom(rank_, i, [&](uint32_t reader) {
        if (status.succeeded())
          status = post(out, operation, firstMessage + uint32_t(i), reader, a.shard, bytes(shard));
      });
      ZORSE_TRY(status);
      if (reads && a.full && place(shard) != a.shard)
        std::memcpy(place(shard), a.shard, bytes(shard));
    }
    for (Relayed &relay : relayed) {
      ZORSE_TRY(relay.from->awaitHead());
      std::vector<Outgoing *> onward;
      for (uint32_t reader : relay.readers) {
        Result<Link *> link = to(reader);
        if (link.failed())
          return link.error();
        onward.push_back(&out.emplace_back(*links_, blocks_, **link, slotOf(operation, relay.message), relay.data, relay.bytes));
        ZORSE_TRY(onward.back()->begin());
      }
      for (size_t part = 0; part < relay.from->parts(); ++part) {
        ZORSE_TRY(relay.from->await(part));
        for (Outgoing *message : onward)
          ZORSE_TRY(message->offer(part));
      }
    }
    for (Incoming &message : in)
      if (std::none_of(relayed.begin(), relayed.end(), [&](const Relayed &relay) { return relay.from == &message; }))
        ZORSE_TRY(message.finish());
    return finish(out);
  }

  Status reduce(Operation operation, const ReduceScatterArguments &a) {
    Outbox out;
    bool contributes = std::find(a.contributors.begin(), a.contributors.end(), rank_) != a.contributors.end();
    size_t element = bytesOf(a.type);
    auto at = [&](int64_t index) { return static_cast<const std::byte *>(a.full) + index * int64_t(element); };

    // Receives first: of the first parts of what others contribute to this rank's shard.
    std::list<Sum> sums;
    for (size_t i = 0; i < a.shards.size(); ++i) {
      const Shard &shard = a.shards[i];
      if (shard.device != rank_ || shard.end == shard.begin)
        continue;
      Sum &sum = sums.emplace_back(blocks_, a.type, a.shard, size_t(shard.end - shard.begin) * element);
      for (uint32_t contributor : a.contributors) {
        if (contributor == rank_) {
          sum.addLocal(at(shard.begin));
          continue;
        }
        ZORSE_TRY(expect(sum.incoming(), operation, uint32_t(i), contributor, nullptr, sum.bytes()));
        ZORSE_TRY(sum.addRemote());
      }
    }
    for (size_t i = 0; i < a.shards.size() && contributes; ++i) {
      const Shard &shard = a.shards[i];
      if (shard.device != rank_ && shard.end > shard.begin)
        ZORSE_TRY(post(out, operation, uint32_t(i), shard.device, at(shard.begin), size_t(shard.end - shard.begin) * element));
    }
    for (Sum &sum : sums)
      ZORSE_TRY(sum.run());
    return finish(out);
  }

  /// The sum over one shard, of contributions that lie here or arrive part by part: one part is summed while the next ones arrive.
  class Sum {
  public:
    Sum(Blocks &blocks, NumberType type, void *target, size_t bytes)
        : blocks_(blocks), type_(type), target_(static_cast<std::byte *>(target)), bytes_(bytes), parts_(partsOf(bytes)) {}
    ~Sum() {
      in_.clear(); // nothing arrives in the blocks any more.
      for (Source &source : sources_)
        for (Blocks::Block &block : source.ring)
          blocks_.givePart(std::move(block));
    }

    size_t bytes() const { return bytes_; }
    Inbox &incoming() { return in_; }

    void addLocal(const std::byte *data) { sources_.emplace_back().local = data; }

    /// The message last put into `incoming`.
    Status addRemote() {
      Source &source = sources_.emplace_back();
      source.remote = &in_.back();
      for (size_t i = 0; i < std::min(kWindow, parts_); ++i)
        source.ring.push_back(blocks_.takePart());
      ZORSE_TRY(source.remote->begin());
      for (size_t part = 0; part < source.ring.size(); ++part)
        ZORSE_TRY(source.remote->post(part, source.ring[part].get()));
      return Status::success();
    }

    Status run() {
      size_t element = bytesOf(type_);
      std::vector<const void *> addends(sources_.size());
      for (Source &source : sources_)
        if (source.remote)
          ZORSE_TRY(source.remote->awaitHead());
      if (parts_ == 0) {
        for (size_t s = 0; s < sources_.size(); ++s)
          addends[s] = sources_[s].remote ? sources_[s].remote->inlined() : sources_[s].local;
        rankedSum(type_, target_, addends, int64_t(bytes_ / element));
        return Status::success();
      }
      for (size_t part = 0; part < parts_; ++part) {
        size_t offset = part * partBytes(bytes_);
        for (size_t s = 0; s < sources_.size(); ++s) {
          Source &source = sources_[s];
          if (source.remote)
            ZORSE_TRY(source.remote->await(part));
          addends[s] = source.remote ? source.ring[part % kWindow].get() : source.local + offset;
        }
        rankedSum(type_, target_ + offset, addends, int64_t(bytesOfPart(bytes_, part) / element));
        if (part + kWindow < parts_)
          for (Source &source : sources_)
            if (source.remote)
              ZORSE_TRY(source.remote->post(part + kWindow, source.ring[part % kWindow].get()));
      }
      return Status::success();
    }

  private:
    struct Source {
      const std::byte *local = nullptr;
      Incoming *remote = nullptr;
      std::vector<Blocks::Block> ring;
    };
    Blocks &blocks_;
    NumberType type_;
    std::byte *target_;
    size_t bytes_, parts_;
    Inbox in_;
    std::vector<Source> sources_; ///< in the order of summation
  };

  /// Few numbers: everybody sends its own to everybody and adds them all.
  Status sumByAll(Operation operation, const AllReduceArguments &a, size_t bytes) {
    Inbox in;
    Outbox out;
    std::vector<const void *> addends;
    for (uint32_t member : a.members) {
      if (member == rank_) {
        addends.push_back(a.data);
        continue;
      }
      ZORSE_TRY(expect(in, operation, 0, member, nullptr, bytes));
      ZORSE_TRY(in.back().begin());
      addends.push_back(in.back().inlined());
    }
    for (uint32_t member : a.members)
      if (member != rank_)
        ZORSE_TRY(post(out, operation, 0, member, a.data, bytes));
    for (Incoming &message : in)
      ZORSE_TRY(message.awaitHead());
    if (bytes > 0)
      rankedSum(a.type, a.data, addends, a.count); // what we sent was copied.
    return finish(out);
  }

  /// Few numbers of many members: the first one adds.
  Status sumByFirst(Operation operation, const AllReduceArguments &a, size_t bytes) {
    Inbox in;
    Outbox out;
    uint32_t first = a.members[0];
    if (rank_ != first) {
      ZORSE_TRY(expect(in, operation, kSecondPhase, first, a.data, bytes));
      ZORSE_TRY(in.back().begin());
      ZORSE_TRY(post(out, operation, 0, first, a.data, bytes));
      ZORSE_TRY(finish(out));
      return in.back().awaitHead();
    }
    std::vector<const void *> addends{a.data};
    for (size_t m = 1; m < a.members.size(); ++m) {
      ZORSE_TRY(expect(in, operation, 0, a.members[m], nullptr, bytes));
      ZORSE_TRY(in.back().begin());
      addends.push_back(in.back().inlined());
    }
    for (Incoming &message : in)
      ZORSE_TRY(message.awaitHead());
    if (bytes > 0)
      rankedSum(a.type, a.data, addends, a.count);
    for (size_t m = 1; m < a.members.size(); ++m)
      ZORSE_TRY(post(out, operation, kSecondPhase, a.members[m], a.data, bytes));
    return finish(out);
  }

  std::unique_ptr<Links> links_;
  Blocks blocks_;
  uint32_t rank_;
  std::vector<uint32_t> sites_;
};

/// A write to a connection whose peer died must be an error, not the end of the process.
void ignoreBrokenPipes() {
  struct sigaction now = {};
  if (sigaction(SIGPIPE, nullptr, &now) == 0 && now.sa_handler == SIG_DFL) {
    now.sa_handler = SIG_IGN;
    sigaction(SIGPIPE, &now, nullptr);
  }
}

} // namespace

Result<std::unique_ptr<Transport>> zorse::runtime::makeGlooTransport(Group &group, const GlooOptions &options) {
  ignoreBrokenPipes();
  Result<std::map<uint32_t, Connections>> connections = connectRanks(group, options);
  if (connections.failed())
    return connections.error();
  Result<std::unique_ptr<Links>> links = Links::create(options, std::move(*connections));
  if (links.failed())
    return links.error();
  return std::unique_ptr<Transport>(std::make_unique<GlooTransport>(std::move(*links), group.rank(), options.sites));
}
