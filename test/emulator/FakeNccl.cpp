// Stand-in for libnccl.so.2, between threads and between processes. Operations run on the
// stand-in's streams; their reads and writes are checked for order (Streams.h), and data that has
// not arrived is poisoned. If ranks issue different operations or sizes, this is detected and
// printed, and their streams fail. Ranks that issue the same operations in different orders wait
// for each other, as with NCCL. Communicators are non-blocking. Using one GPU twice is an error.
//
// - ZORSE_NCCL_VERSION=22803,22105: the version; several: indexed by ZORSE_RANK, the last one for
//   all others
// - ZORSE_EMULATOR_LINK=rate: bytes/s in each direction of a GPU. An operation lasts from the
//   arrival of all participants for the time of its incoming or outgoing bytes, whichever is
//   longer; default: no additional time
// - ZORSE_NCCL_FAULT=hang@17:1: the 17th operation of rank 1 of a communicator never ends (all
//   communicators of a process are counted together, from 0)
// - ZORSE_NCCL_FAULT=fail@17:1: it fails and the communicator reports an error
// - ZORSE_NCCL_FAULT=wrong@17:1: it receives wrong bytes
#include "NcclMeeting.h"
#include "StandIn.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <thread>

using namespace zorse::emulator;

namespace {

constexpr int kSuccess = 0, kSystemError = 2, kInvalidArgument = 4, kInvalidUsage = 5,
              kRemoteError = 6, kInProgress = 7;
constexpr unsigned char kPoison = 0xff; // a NaN

enum Kind : uint32_t { Transfer = 1, Broadcast, Gather };

struct UniqueId {
  char internal[128];
};
struct Config {
  size_t size;
  unsigned magic, version;
  int blocking;
};

int version() {
  const char *text = std::getenv("ZORSE_NCCL_VERSION"), *rank = std::getenv("ZORSE_RANK");
  if (!text)
    return 22800;
  for (int skip = rank ? std::atoi(rank) : 0; skip > 0 && std::strchr(text, ','); --skip)
    text = std::strchr(text, ',') + 1;
  return std::atoi(text);
}

struct Fault {
  std::string kind;
  unsigned long long operation = 0;
  int rank = 0;
};
const Fault &fault() {
  static const Fault asked = [] {
    Fault f;
    char kind[16] = "";
    const char *text = std::getenv("ZORSE_NCCL_FAULT");
    if (text && std::sscanf(text, "%15[a-z]@%llu:%d", kind, &f.operation, &f.rank) == 3)
      f.kind = kind;
    return f;
  }();
  return asked;
}

/// Exists while work on streams refers to it.
struct Communicator {
  std::unique_ptr<Meeting> meeting;
  int rank = 0, unit = 0;
  std::atomic<int> error{kInProgress}; ///< the asynchronous error it reports
  std::atomic<bool> aborted{false};
  std::string said; ///< set before `error`
  std::thread joining, launching;
  std::set<std::pair<bool, int>> connected; ///< peers that it has sent to or received from
  ~Communicator() {
    if (launching.joinable())
      launching.detach(); // it owns all data it needs
  }
};
using Shared = std::shared_ptr<Communicator>;

/// Number of running kernels of communicators, by GPU.
std::array<std::atomic<int>, 256> running{};
struct Runs {
  explicit Runs(int unit) : count(running[size_t(unit) % running.size()]) { ++count; }
  ~Runs() { --count; }
  std::atomic<int> &count;
};
Shared &of(void *comm) { return *static_cast<Shared *>(comm); }

/// A message between two ranks.
struct Piece {
  Kind kind;
  bool sends;
  int peer;
  char *data;
  uint64_t bytes, moved = 0;
  bool begun = false;
  bool done() const { return begun && moved == bytes; }
};

struct Operation {
  Shared comm;
  Stream *stream;
  std::string what;
  std::vector<Piece> pieces;
  std::vector<Access> accesses;
  std::vector<std::pair<char *, const char *>> copies; ///< local copies within a rank
  std::vector<uint64_t> copied;
  uint64_t in = 0,
           out = 0; ///< bytes over the GPU's link; those of a broadcast count once, as in a ring
};

thread_local int depth = 0;
thread_local std::vector<Operation> waiting;
std::map<int, uint64_t> counts; ///< number of operations by rank
std::mutex mutex;

/// Moves the next part of a message. \returns whether data moved; `found`: ranks disagree; `met`:
/// the latest begin of the peers' operations
bool move(Communicator &c, Piece &piece, bool blocked, std::string &found, double &met) {
  if (piece.done() || blocked)
    return false;
  Box &box = piece.sends ? c.meeting->box(c.rank, piece.peer) : c.meeting->box(piece.peer, c.rank);
  if (piece.sends) {
    if (box.full.load() != 0)
      return false;
    box.kind = piece.kind;
    box.total = piece.bytes;
    box.offset = piece.moved;
    box.bytes = std::min<uint64_t>(piece.bytes - piece.moved, Box::kPiece);
    std::memcpy(box.data, piece.data + piece.moved, box.bytes);
    if (piece.begun)
      met = std::max(met, box.taken);
    box.given = zorseStandInBegan();
    piece.moved += box.bytes;
    piece.begun = true;
    box.full.store(1);
    return true;
  }
  if (box.full.load() == 0)
    return false;
  if (box.kind != piece.kind || box.total != piece.bytes || box.offset != piece.moved) {
    found = "rank " + std::to_string(c.rank) + " expects " + std::to_string(piece.bytes) +
            " bytes of operation " + std::to_string(piece.kind) + " from rank " +
            std::to_string(piece.peer) + ", which issues " + std::to_string(box.total) +
            " bytes of operation " + std::to_string(box.kind) +
            ": ranks issue different operations or sizes";
    return false;
  }
  std::memcpy(piece.data + piece.moved, box.data, box.bytes);
  met = std::max(met, box.given);
  box.taken = zorseStandInBegan();
  piece.moved += box.bytes;
  piece.begun = true;
  box.full.store(0);
  return true;
}

std::string run(Operation operation, uint64_t number) {
  Communicator &c = *operation.comm;
  const Runs runs(c.unit);
  for (Piece &piece : operation.pieces)
    if (!piece.sends)
      std::memset(piece.data, kPoison, piece.bytes);
  for (size_t i = 0; i < operation.copies.size(); ++i)
    std::memmove(operation.copies[i].first, operation.copies[i].second, operation.copied[i]);
  const bool mine = !fault().kind.empty() && fault().rank == c.rank && fault().operation == number;
  if (mine && fault().kind == "fail") {
    c.said = "as it was asked to";
    c.error = kRemoteError;
  }
  const bool hangs = mine && fault().kind != "wrong";
  const bool paced = zorseStandInLinkSeconds() > 0;
  double met = zorseStandInBegan();
  for (;;) {
    if (c.aborted)
      return {};
    bool moved = false, left = hangs;
    std::string found;
    // Messages between two ranks stay in order: a later message of the group waits for the earlier
    // one.
    std::map<std::pair<bool, int>, bool> blocked;
    for (Piece &piece : operation.pieces) {
      bool &behind = blocked[{piece.sends, piece.peer}];
      moved = (!hangs && move(c, piece, behind, found, met)) || moved;
      behind = behind || !piece.done();
      // The receiver has not taken the data yet.
      const bool waits = piece.sends && c.meeting->box(c.rank, piece.peer).full.load() != 0;
      left = left || !piece.done() || (paced && waits);
      if (paced && piece.sends && piece.done() && !waits)
        met = std::max(met, c.meeting->box(c.rank, piece.peer).taken);
    }
    if (!found.empty() || c.meeting->broken().load() != 0) {
      c.said = found;
      c.error = kInvalidUsage;
      c.meeting->broken().store(1);
      return found.empty() ? "" : operation.what + ": " + found;
    }
    if (!left)
      break;
    if (!moved)
      std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  if (paced)
    zorseStandInLasts(met +
                      double(std::max(operation.in, operation.out)) * zorseStandInLinkSeconds());
  if (mine)
    for (Piece &piece : operation.pieces)
      if (!piece.sends && piece.bytes > 0)
        piece.data[piece.bytes / 2] ^= 1;
  return {};
}

int put(Operation operation) {
  uint64_t number = 0;
  {
    std::lock_guard<std::mutex> lock(mutex);
    number = counts[operation.comm->rank]++;
  }
  Stream *const stream = operation.stream;
  const std::string what = operation.what;
  const std::vector<Access> accesses = std::move(operation.accesses);
  zorseStandInApart(stream);
  return zorseStandInPut(stream, what, accesses,
                         [operation = std::move(operation), number]() mutable {
                           return run(std::move(operation), number);
                         }) == 0
             ? kSuccess
             : 1;
}

int flush() {
  // All calls of a group with the same communicator and stream form one operation.
  std::vector<Operation> all;
  for (Operation &next : waiting) {
    auto same = std::find_if(all.begin(), all.end(), [&](const Operation &o) {
      return o.comm == next.comm && o.stream == next.stream;
    });
    if (same == all.end()) {
      all.push_back(std::move(next));
      continue;
    }
    same->pieces.insert(same->pieces.end(), next.pieces.begin(), next.pieces.end());
    same->accesses.insert(same->accesses.end(), next.accesses.begin(), next.accesses.end());
    same->copies.insert(same->copies.end(), next.copies.begin(), next.copies.end());
    same->copied.insert(same->copied.end(), next.copied.begin(), next.copied.end());
    same->in += next.in;
    same->out += next.out;
  }
  waiting.clear();
  for (Operation &operation : all) {
    Communicator &c = *operation.comm;
    if (c.launching.joinable())
      c.launching.join();
    // A thread of NCCL launches the kernel some time after the call. Putting other work on the
    // stream before that, or calling again, is an error.
    c.error = kInProgress;
    const Shared comm = operation.comm;
    c.launching = std::thread([comm, operation = std::move(operation)]() mutable {
      std::this_thread::sleep_for(std::chrono::microseconds(100));
      const int result = put(std::move(operation));
      int expected = kInProgress;
      comm->error.compare_exchange_strong(expected, result);
    });
  }
  return all.empty() ? kSuccess : kInProgress;
}

int issue(Operation operation) {
  if (operation.comm->error != kSuccess)
    return operation.comm->error == kInProgress ? kInvalidUsage : operation.comm->error.load();
  waiting.push_back(std::move(operation));
  return depth > 0 ? kSuccess : flush();
}

uint64_t bytesOf(size_t count, int type) {
  static const uint64_t sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
  return type >= 0 && type < 10 ? count * sizes[type] : 0;
}

// At a pace, operations take the link's time (see run) and not the memory's.
Access reads(const void *data, uint64_t bytes) {
  return {uintptr_t(data), uintptr_t(data) + bytes, false, false};
}
Access writes(const void *data, uint64_t bytes) {
  return {uintptr_t(data), uintptr_t(data) + bytes, true, false};
}

int transfer(bool sends, const void *data, size_t count, int type, int peer, void *comm,
             void *stream) {
  const Shared &c = of(comm);
  if (peer < 0 || peer >= c->meeting->ranks())
    return kInvalidArgument;
  if (peer == c->rank && depth == 0)
    return kInvalidUsage; // a rank may send to itself only within a group
  if (c->connected.insert({sends, peer}).second)
    zorseStandInConnects();
  if (zorseStandInLeavesOut(static_cast<Stream *>(stream)))
    return kSuccess;
  Operation operation{c, static_cast<Stream *>(stream), sends ? "ncclSend" : "ncclRecv", {}, {}, {},
                      {}};
  auto *bytes = static_cast<char *>(const_cast<void *>(data));
  operation.pieces.push_back({Transfer, sends, peer, bytes, bytesOf(count, type)});
  operation.accesses.push_back(sends ? reads(data, bytesOf(count, type))
                                     : writes(data, bytesOf(count, type)));
  (sends ? operation.out : operation.in) = bytesOf(count, type);
  return issue(std::move(operation));
}

} // namespace

extern "C" {

int ncclGetVersion(int *out) { return *out = version(), kSuccess; }

int ncclGetUniqueId(UniqueId *id) {
  static const char digits[] = "0123456789abcdef";
  std::random_device random;
  std::memset(id->internal, 0, sizeof id->internal);
  for (int i = 0; i < 24; ++i)
    id->internal[i] = digits[random() % 16];
  return kSuccess;
}

int ncclCommInitRankConfig(void **out, int ranks, UniqueId id, int rank, Config *config) {
  if (!config || config->magic != 0xcafebeef || config->blocking != 0)
    return kInvalidArgument; // calls here never block
  if (ranks < 1 || ranks > Meeting::kMaxRanks || rank < 0 || rank >= ranks ||
      std::strlen(id.internal) != 24)
    return kInvalidArgument;
  auto c = std::make_shared<Communicator>();
  c->meeting = Meeting::open(id.internal, ranks);
  c->rank = rank;
  if (!c->meeting)
    return kSystemError;
  c->unit = zorseStandInUnit();
  c->meeting->join(rank, version(), c->unit);
  c->joining = std::thread([raw = c.get()] {
    while (!raw->meeting->everybodyIsHere()) {
      if (raw->aborted)
        return;
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
    if (const char *seconds = std::getenv("ZORSE_NCCL_JOIN_SECONDS"))
      std::this_thread::sleep_for(std::chrono::duration<double>(std::atof(seconds)));
    raw->said = raw->meeting->problem();
    raw->error = raw->said.empty() ? kSuccess : kInvalidUsage;
  });
  *out = new Shared(std::move(c));
  return kInProgress;
}

int ncclCommGetAsyncError(void *comm, int *error) { return *error = of(comm)->error, kSuccess; }
int ncclCommFinalize(void *) { return kSuccess; }
/// Ends the communicator's kernels and frees memory, which waits for all work on the GPU. NCCL
/// waits forever for a kernel that is never aborted.
int ncclCommAbort(void *comm) {
  Shared &c = of(comm);
  c->aborted = true;
  for (int waited = 0; running[size_t(c->unit) % running.size()] > 0; ++waited) {
    if (waited == 5000) {
      std::fprintf(stderr, "emulator: ncclCommAbort waits for a kernel of another communicator on "
                           "the same GPU that is never aborted\n");
      std::abort();
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  for (std::thread *thread : {&c->joining, &c->launching})
    if (thread->joinable())
      thread->join();
  delete &c;
  return kSuccess;
}
int ncclCommDestroy(void *comm) { return ncclCommAbort(comm); }

const char *ncclGetErrorString(int error) {
  return error == kInvalidUsage  ? "invalid usage"
         : error == kRemoteError ? "remote process exited or there was a network error"
                                 : "an error";
}
const char *ncclGetLastError(void *comm) { return comm ? of(comm)->said.c_str() : ""; }

int ncclGroupStart() { return ++depth, kSuccess; }
int ncclGroupEnd() { return --depth > 0 ? kSuccess : flush(); }

int ncclSend(const void *data, size_t count, int type, int peer, void *comm, void *stream) {
  return transfer(true, data, count, type, peer, comm, stream);
}
int ncclRecv(void *data, size_t count, int type, int peer, void *comm, void *stream) {
  return transfer(false, data, count, type, peer, comm, stream);
}

int ncclBroadcast(const void *from, void *to, size_t count, int type, int root, void *comm,
                  void *stream) {
  const Shared &c = of(comm);
  const uint64_t bytes = bytesOf(count, type);
  if (root < 0 || root >= c->meeting->ranks())
    return kInvalidArgument;
  if (zorseStandInLeavesOut(static_cast<Stream *>(stream)))
    return kSuccess;
  Operation operation{c, static_cast<Stream *>(stream), "ncclBroadcast", {}, {}, {}, {}};
  if (root != c->rank) {
    operation.pieces.push_back({Broadcast, false, root, static_cast<char *>(to), bytes});
    operation.accesses.push_back(writes(to, bytes));
    operation.in = bytes;
    return issue(std::move(operation));
  }
  for (int peer = 0; peer < c->meeting->ranks(); ++peer)
    if (peer != root)
      operation.pieces.push_back(
          {Broadcast, true, peer, static_cast<char *>(const_cast<void *>(from)), bytes});
  operation.accesses.push_back(reads(from, bytes));
  operation.out = bytes;
  if (from != to) {
    operation.accesses.push_back(writes(to, bytes));
    operation.copies.push_back({static_cast<char *>(to), static_cast<const char *>(from)});
    operation.copied.push_back(bytes);
  }
  return issue(std::move(operation));
}

int ncclAllGather(const void *from, void *to, size_t count, int type, void *comm, void *stream) {
  const Shared &c = of(comm);
  const uint64_t bytes = bytesOf(count, type);
  if (zorseStandInLeavesOut(static_cast<Stream *>(stream)))
    return kSuccess;
  Operation operation{c, static_cast<Stream *>(stream), "ncclAllGather", {}, {}, {}, {}};
  auto *all = static_cast<char *>(to), *own = all + uint64_t(c->rank) * bytes;
  for (int peer = 0; peer < c->meeting->ranks(); ++peer) {
    if (peer == c->rank)
      continue;
    operation.pieces.push_back(
        {Gather, true, peer, static_cast<char *>(const_cast<void *>(from)), bytes});
    operation.pieces.push_back({Gather, false, peer, all + uint64_t(peer) * bytes, bytes});
    operation.accesses.push_back(writes(all + uint64_t(peer) * bytes, bytes));
  }
  operation.accesses.push_back(reads(from, bytes));
  operation.in = operation.out = bytes * uint64_t(c->meeting->ranks() - 1);
  if (from != own) {
    operation.accesses.push_back(writes(own, bytes));
    operation.copies.push_back({own, static_cast<const char *>(from)});
    operation.copied.push_back(bytes);
  }
  return issue(std::move(operation));
}

} // extern "C"
