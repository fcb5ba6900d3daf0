// The checks of a job that depend on time: ranks that do not join, are not heard, do not receive
// data or make no progress.
#include "Job.h"
#include "Sockets.h"

#include <algorithm>

using namespace zorse::control;
using namespace zorse::runtime;

void Job::checkJoined(double elapsed, double now, const std::function<std::string()> &refused) {
  if (elapsed < settings_.times.joinSeconds)
    return;
  std::string missing;
  uint32_t first = kNoRank, count = 0;
  for (uint32_t rank = 0; rank < settings_.worldSize; ++rank) {
    if (ranks_[rank].state != State::Absent)
      continue;
    first = std::min(first, rank);
    if (++count <= 8)
      missing += (missing.empty() ? "" : ", ") + rootCauseFinder_.nameOf(rank);
  }
  if (count == 0)
    return;
  std::string away = refused ? refused() : "";
  rootCauseFinder_.found(
      foundBy(Failure::NotJoined, ErrorKind::User, first, ranks_[first].device,
              missing + (count > 8 ? " and " + std::to_string(count - 8) + " more" : "") +
                  " did not join within " + durationText(settings_.times.joinSeconds) +
                  ": expected " + std::to_string(settings_.worldSize) + " ranks, found " +
                  std::to_string(settings_.worldSize - count) +
                  "; were they started, and can they reach the coordinator's address?" +
                  (away.empty() ? "" : " Rejected connections: " + away)),
      now);
}

void Job::checkHeartbeats(double now) {
  for (uint32_t rank = 0; rank < settings_.worldSize; ++rank) {
    Rank &r = ranks_[rank];
    const double deadline = settings_.times.heartbeatTimeoutSeconds,
                 silence = now - r.lastHeardSeconds;
    if (r.state != State::Working || !r.connected || silence <= deadline ||
        (silence <= deadline + sendingAgainSeconds(deadline) && outbox_.isSendingAgain(rank)))
      continue;
    r.silent = true;
    std::string where = r.progress.inProgress && !r.progress.where.empty()
                            ? "; last heard of in " + r.progress.where
                            : "";
    Failure failure = foundBy(
        Failure::MissedHeartbeats, ErrorKind::User, rank, r.device,
        rootCauseFinder_.nameOf(rank) + " is lost: nothing was heard of it for " +
            durationText(settings_.times.heartbeatTimeoutSeconds) +
            " (its process is stopped or starved, its machine or its network is down)" + where);
    failure.where = r.progress.inProgress ? r.progress.where : "";
    rootCauseFinder_.found(failure, now);
  }
}

/// Finds a rank that the coordinator hears and some peer does not. A rank's report about a peer
/// counts only while the rank itself is heard. The coordinator's own observation of silence is
/// better evidence and comes first.
///
/// If two ranks do not hear each other, packets were first lost in one direction: the other rank
/// falls silent later because it receives no acknowledgements. The rank that fell silent first is
/// therefore named; of several, the one that most peers do not hear.
void Job::checkLinks(double now) {
  const double deadline = settings_.times.heartbeatTimeoutSeconds,
               late = 2 * settings_.times.heartbeatSeconds + sendingAgainSeconds(deadline);
  struct UnresponsiveRank {
    uint32_t listeners = 0, first = kNoRank; ///< peers that do not hear it; the peer that has not
                                             ///< heard it for the longest time
    double since = 0;
  };
  std::map<uint32_t, UnresponsiveRank> silent;
  bool over = false;
  for (uint32_t rank = 0; rank < settings_.worldSize; ++rank) {
    const Rank &r = ranks_[rank];
    if (r.state != State::Working || !r.connected || now - r.lastHeardSeconds > deadline / 2)
      continue;
    for (const auto &[peer, since] : r.unresponsive) {
      if (ranks_[peer].state != State::Working || now - since <= deadline / 2)
        continue;
      UnresponsiveRank &s = silent[peer];
      if (s.listeners++ == 0 || since < s.since) {
        s.since = since;
        s.first = rank;
      }
      over |= now - since > deadline + late;
    }
  }
  if (!over)
    return silent.empty() ? checkDelivery(now) : void();
  auto worst = std::max_element(silent.begin(), silent.end(), [](const auto &a, const auto &b) {
    return a.second.listeners != b.second.listeners ? a.second.listeners < b.second.listeners
                                                    : a.second.since > b.second.since;
  });
  const auto &[rank, s] = *worst;
  std::string text = rootCauseFinder_.nameOf(rank) + " is cut off from " +
                     rootCauseFinder_.nameOf(s.first) +
                     (s.listeners > 1 ? " and " + std::to_string(s.listeners - 1) + " more" : "") +
                     ": nothing was received from it there for " + durationText(now - s.since) +
                     ", although the coordinator hears both: its packets are lost in the network";
  if (auto back = ranks_[rank].unresponsive.find(s.first); back != ranks_[rank].unresponsive.end())
    text += " (it has not heard " + rootCauseFinder_.nameOf(s.first) + " for " +
            durationText(now - back->second) + " either)";
  Failure failure =
      foundBy(Failure::MissedHeartbeats, ErrorKind::User, rank, ranks_[rank].device, text);
  failure.where = ranks_[rank].progress.inProgress ? ranks_[rank].progress.where : "";
  rootCauseFinder_.found(failure, now);
}

/// Finds a rank whose data does not arrive at a peer although all ranks hear each other. Only large
/// packets are lost then, for example in a tunnel with an MTU that the hosts do not know.
void Job::checkDelivery(double now) {
  const double deadline = settings_.times.heartbeatTimeoutSeconds,
               late = 2 * settings_.times.heartbeatSeconds + sendingAgainSeconds(deadline);
  for (uint32_t rank = 0; rank < settings_.worldSize; ++rank) {
    const Rank &r = ranks_[rank];
    for (const auto &[peer, since] : r.undelivered) {
      if (r.state != State::Working || ranks_[peer].state != State::Working ||
          now - since <= deadline + late)
        continue;
      Failure failure = foundBy(
          Failure::MissedHeartbeats, ErrorKind::User, rank, r.device,
          rootCauseFinder_.nameOf(rank) + " is cut off from " + rootCauseFinder_.nameOf(peer) +
              ": nothing that it sent there was acknowledged for " + durationText(now - since) +
              ", although each hears the other: large packets are lost in the network (is there a "
              "tunnel whose MTU is " +
              "smaller than that of the network interfaces? ip link set DEVICE mtu 1280 lowers "
              "theirs)");
      failure.where = r.progress.inProgress ? r.progress.where : "";
      rootCauseFinder_.found(failure, now);
      return;
    }
  }
}

void Job::checkProgress(double now) {
  const Rank *earliest = nullptr;
  for (const Rank &r : ranks_) {
    if (r.state != State::Working || !r.progress.inProgress)
      continue;
    const RankProgress &p = r.progress;
    if (!earliest || p.step < earliest->progress.step ||
        (p.step == earliest->progress.step && p.instruction < earliest->progress.instruction))
      earliest = &r;
  }
  if (!earliest)
    progressAt_ = now;
  if (now - progressAt_ <= settings_.times.watchdogTimeoutSeconds)
    return;
  uint32_t rank = uint32_t(earliest - ranks_.data());
  Failure failure = foundBy(
      Failure::Stalled, ErrorKind::User, rank, earliest->device,
      "no rank has made progress for " + durationText(settings_.times.watchdogTimeoutSeconds) +
          ": the earliest unfinished instruction is of step " +
          std::to_string(earliest->progress.step) + ", where " + rootCauseFinder_.nameOf(rank) +
          " is in " +
          (earliest->progress.where.empty()
               ? "instruction " + std::to_string(earliest->progress.instruction)
               : earliest->progress.where));
  failure.where = earliest->progress.where;
  rootCauseFinder_.found(failure, now);
}
