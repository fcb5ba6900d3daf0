#include "RootCauseFinder.h"

#include <algorithm>
#include <cstdio>

using namespace zorse::control;
using namespace zorse::runtime;

RootCauseFinder::RootCauseFinder(uint32_t worldSize, std::vector<std::string> devices)
    : ranks_(worldSize) {
  for (uint32_t rank = 0; rank < worldSize && rank < devices.size(); ++rank)
    ranks_[rank].device = devices[rank];
}

std::string RootCauseFinder::nameOf(uint32_t rank) const {
  if (rank >= ranks_.size())
    return "the launcher";
  const std::string &device = ranks_[rank].device;
  return "rank " + std::to_string(rank) + (device.empty() ? "" : " (device " + device + ")");
}

void RootCauseFinder::note(uint32_t rank, double now) {
  if (!ranks_[rank].known())
    ranks_[rank].since = now;
  if (first_ == kNoRank) {
    first_ = rank;
    firstAt_ = now;
  }
}

void RootCauseFinder::reported(const Failure &failure, double now) {
  Rank &rank = ranks_[failure.rank];
  if (rank.own)
    return;
  note(failure.rank, now);
  rank.own = failure;
  if (rank.own->peer == failure.rank)
    rank.own->peer = kNoRank;
  if (rank.own->where.empty())
    rank.own->where = rank.where;
}

void RootCauseFinder::processEnded(uint32_t rank, const std::string &how, int exitCode,
                                   bool hadJoined, double now) {
  Rank &r = ranks_[rank];
  if (r.ended)
    return;
  note(rank, now);
  r.ended = true;
  r.how = how.rfind("killed ", 0) == 0 ? "was " + how : how;
  r.exitCode = exitCode;
  r.hadJoined = hadJoined;
}

void RootCauseFinder::closed(uint32_t rank, const std::string &why, double now) {
  note(rank, now);
  ranks_[rank].isClosed = ranks_[rank].mute = true;
  ranks_[rank].why = why;
}

void RootCauseFinder::found(const Failure &failure, double) {
  if (!found_)
    found_ = failure;
}

uint32_t RootCauseFinder::earliestTrouble(uint32_t except) const {
  uint32_t best = kNoRank;
  for (uint32_t r = 0; r < ranks_.size(); ++r) {
    const Rank &rank = ranks_[r];
    bool trouble = rank.own ? !accusesPeer(*rank.own) : rank.known();
    if (trouble && r != except && (best == kNoRank || rank.since < ranks_[best].since))
      best = r;
  }
  return best;
}

RootCauseFinder::FailureChain RootCauseFinder::follow() const {
  std::vector<bool> visited(ranks_.size());
  FailureChain chain;
  chain.end = first_;
  while (true) {
    const Rank &rank = ranks_[chain.end];
    visited[chain.end] = true;
    if (!rank.own) {
      chain.final = rank.ended && rank.mute;
      return chain;
    }
    if (!accusesPeer(*rank.own)) {
      chain.final = true;
      return chain;
    }
    uint32_t next = rank.own->peer != kNoRank ? rank.own->peer : earliestTrouble(chain.end);
    if (next == kNoRank || visited[next])
      return chain;
    chain.from = chain.end;
    chain.end = next;
  }
}

std::optional<Failure> RootCauseFinder::rootCause(double now) const {
  if (first_ == kNoRank)
    return found_;
  FailureChain chain = follow();
  if (chain.final)
    return describe(chain, now);
  if (found_ && found_->rank == chain.end) {
    Failure out = *found_;
    out.message += noticedBy(chain.end, chain.from);
    return out;
  }
  if (now - firstAt_ < kGraceSeconds)
    return std::nullopt;
  if (const Rank &end = ranks_[chain.end]; end.own || !end.known()) {
    // There is only blame. A rank that failed is a better explanation than a blamed rank that did
    // not.
    if (uint32_t other = earliestTrouble(kNoRank); other != kNoRank)
      chain = {other, end.own ? chain.end : chain.from, false};
    else if (found_)
      return found_;
  }
  return describe(chain, now);
}

std::string RootCauseFinder::noticedBy(uint32_t rank, uint32_t from) const {
  if (from == kNoRank || from == rank) // any rank that blames it
    for (uint32_t r = 0; r < ranks_.size(); ++r)
      if (r != rank && ranks_[r].own && ranks_[r].own->peer == rank)
        from = r;
  if (from != kNoRank && from != rank) {
    const Failure &own = *ranks_[from].own;
    return "; " + nameOf(from) + " noticed" +
           (own.where.empty() ? ": " + own.message : " in " + own.where);
  }
  return ranks_[rank].where.empty() ? "" : "; last heard of in " + ranks_[rank].where;
}

/// Describes the failure of a rank about which only another rank's report is known: it cannot reach
/// it.
Failure RootCauseFinder::describeUnreached(uint32_t rank, const Failure &blame, double now) const {
  char ago[48] = "";
  if (ranks_[rank].lastHeardSeconds)
    std::snprintf(ago, sizeof ago, "; the coordinator heard it %.1f s ago",
                  std::max(0.0, now - *ranks_[rank].lastHeardSeconds));
  Failure out;
  out.cause = Failure::Disconnected;
  out.kind = blame.kind;
  out.rank = rank;
  out.device = ranks_[rank].device;
  out.message = nameOf(rank) +
                " is not reached any more (its process has died, or its network is lost): " +
                nameOf(blame.rank) + (blame.where.empty() ? "" : ", " + blame.where) +
                ", says: " + blame.message + ago;
  return out;
}

Failure RootCauseFinder::describe(const FailureChain &chain, double now) const {
  const Rank &rank = ranks_[chain.end];
  Failure out;
  if (rank.own) {
    out = *rank.own;
    out.device = rank.device;
    bool placed = out.where.empty() || out.message.find(out.where) != std::string::npos;
    out.message = nameOf(chain.end) + (placed ? "" : ", " + out.where) + ": " + out.message;
    if (out.peer != kNoRank) {
      if (!ranks_[out.peer].known() && !ranks_[out.peer].mute)
        return describeUnreached(out.peer, *rank.own, now);
      bool mutual = ranks_[out.peer].own && ranks_[out.peer].own->peer == chain.end;
      out.exitCode = 2;
      out.message += mutual
                         ? "; " + nameOf(out.peer) + " reports the same of rank " +
                               std::to_string(chain.end) + ": the connection between them is broken"
                         : "; it blames " + nameOf(out.peer) +
                               (ranks_[out.peer].mute ? ", which has finished" : "");
    }
    return out;
  }
  if (!rank.known()) { // only the report of the rank that blames it is known
    FailureChain blame;
    blame.end = chain.from;
    return describe(blame, now);
  }
  out.rank = chain.end;
  out.device = rank.device;
  out.exitCode = rank.ended ? rank.exitCode : 2;
  out.where = rank.where;
  out.cause = rank.ended ? Failure::Died : Failure::Disconnected;
  out.message = nameOf(chain.end) + " " +
                (rank.ended ? rank.how + (rank.hadJoined ? "" : " before it had joined")
                            : "is gone: its control connection ended without a goodbye (" +
                                  rank.why + "), so its process has died or its network is lost") +
                noticedBy(chain.end, chain.from);
  return out;
}
