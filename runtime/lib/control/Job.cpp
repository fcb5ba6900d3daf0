#include "Job.h"

#include "zorse/Base/Format.h"

#include <algorithm>

using namespace zorse::control;
using namespace zorse::runtime;

namespace {

constexpr size_t kEarlyBytes = size_t(64) << 20; ///< limit of the reports for a rank 0 that has not
                                                 ///< joined
constexpr size_t kExchangesAtOnce = 4096;
constexpr int kStoppedCode = 130; ///< exit code of a process that was asked to end and did
/// Seconds that living ranks have to acknowledge the verdict before the rank that hosts the
/// coordinator receives it. The coordinator ends with that rank.
constexpr double kConfirmSeconds = 0.3;

} // namespace

std::string zorse::control::durationText(double seconds) {
  return zorse::format(seconds < 10 ? "%.1f s" : "%.0f s", seconds);
}

Failure zorse::control::foundBy(Failure::Cause cause, ErrorKind kind, uint32_t rank,
                                const std::string &device, std::string message) {
  Failure out;
  out.cause = cause;
  out.kind = kind;
  out.rank = rank;
  out.device = device;
  out.message = std::move(message);
  return out;
}

std::string zorse::control::withoutIs(const std::string &where) {
  for (const char *prefix : {"is in ", "in "})
    if (where.rfind(prefix, 0) == 0)
      return where.substr(std::char_traits<char>::length(prefix));
  return where;
}

Failure zorse::runtime::failureOf(const Error &error) {
  Failure out;
  out.kind = error.kind;
  out.message = error.message;
  out.where = error.where;
  out.exitCode = error.code();
  if (error.peer != kNoRank) {
    out.cause = Failure::Disconnected;
    out.peer = error.peer;
  }
  return out;
}

FailureReport zorse::control::toMessage(const Failure &failure) {
  FailureReport out;
  out.set_cause(uint32_t(failure.cause));
  out.set_internal(failure.kind == ErrorKind::Internal);
  out.set_rank(failure.rank);
  out.set_peer(failure.peer);
  out.set_device(failure.device.substr(0, kDeviceBytes));
  out.set_message(failure.message.substr(0, kTextBytes));
  out.set_where(failure.where.substr(0, kTextBytes));
  out.set_exit_code(std::clamp(failure.exitCode, 0, 255));
  return out;
}

Failure zorse::control::fromMessage(const FailureReport &failure) {
  Failure out;
  out.cause = Failure::Cause(failure.cause());
  out.kind = failure.internal() ? ErrorKind::Internal : ErrorKind::User;
  out.rank = failure.rank();
  out.peer = failure.peer();
  out.device = failure.device();
  out.message = failure.message();
  out.where = failure.where();
  out.exitCode = failure.exit_code();
  return out;
}

Job::Job(JobSettings settings, Outbox &outbox)
    : settings_(std::move(settings)), outbox_(outbox),
      rootCauseFinder_(settings_.worldSize, settings_.devices), ranks_(settings_.worldSize) {
  for (uint32_t rank = 0; rank < settings_.worldSize && rank < settings_.devices.size(); ++rank)
    ranks_[rank].device = settings_.devices[rank];
}

void Job::sendTo(uint32_t rank, const Message &message, bool lasting) {
  outbox_.send(rank, encode(message), lasting);
}

void Job::joined(uint32_t rank, const std::string &device, double now) {
  Rank &r = ranks_[rank];
  r.state = State::Working;
  r.connected = true;
  r.lastHeardSeconds = now;
  if (!device.empty()) {
    r.device = device;
    rootCauseFinder_.setDevice(rank, device);
  }
  progressAt_ = now;
  if (stop_ == Stop::Asking) {
    Message query;
    query.mutable_stop_query();
    sendTo(rank, query);
  }
  if (rank == 0) {
    for (const SharedFrame &frame : early_)
      outbox_.send(0, frame, true);
    early_.clear();
  }
}

void Job::received(uint32_t rank, const Message &message, double now) {
  Rank &r = ranks_[rank];
  if (message.what_case() == Message::kRootCauseAcknowledged) {
    r.acknowledged = true;
    updateOver(now);
    return;
  }
  if (message.what_case() == Message::kReport) { // reports from before a failure are still
                                                 // delivered
    if (r.state != State::Left)
      report(rank, message, now);
    return;
  }
  if (rootCause_ || r.state == State::Left) // the connection of a process that has ended may still
                                            // contain unread messages
    return;
  switch (message.what_case()) {
  case Message::kHeartbeat:
    if (message.heartbeat().has_progress())
      progressed(rank, message.heartbeat().progress(), now);
    r.unresponsive.clear();
    r.undelivered.clear();
    for (const UnresponsiveRank &silence : message.heartbeat().unresponsive())
      (silence.undelivered() ? r.undelivered : r.unresponsive)[silence.rank()] = now -
                                                                                 silence.seconds();
    break;
  case Message::kContribution:
    contributed(rank, message.contribution(), now);
    break;
  case Message::kFailed: {
    Failure failure = fromMessage(message.failed());
    failure.rank = rank; // a rank reports only about itself
    failure.where = withoutIs(failure.where);
    rootCauseFinder_.reported(failure, now);
    decide(now);
    break;
  }
  case Message::kCoordinatorLost:
    coordinatorLost(rank, message.coordinator_lost().seconds(), now);
    break;
  case Message::kStopRequest:
    requestStop(now);
    break;
  case Message::kStopAnswer:
    r.answered = true;
    r.highest = std::max(r.highest, message.stop_answer().highest());
    decideStop();
    break;
  case Message::kLeave:
    r.highest = std::max(r.highest, message.leave().highest());
    left(rank, now);
    break;
  default:
    break; // parseMessage rejects all other messages
  }
}

/// A rank has given up on the coordinator. Only the coordinator knows whether it was itself stopped
/// or whether its messages were lost on the way.
void Job::coordinatorLost(uint32_t rank, double silent, double now) {
  std::string host = rootCauseFinder_.nameOf(settings_.host) + ", which holds the coordinator,";
  if (paused_ > silent / 2)
    rootCauseFinder_.found(
        foundBy(Failure::MissedHeartbeats, ErrorKind::User, settings_.host,
                settings_.host == kNoRank ? "" : ranks_[settings_.host].device,
                host + " was stopped or starved: " + rootCauseFinder_.nameOf(rank) +
                    " heard nothing of it for " + durationText(silent) + " and gave it up"),
        now);
  else
    rootCauseFinder_.found(
        foundBy(Failure::MissedHeartbeats, ErrorKind::User, rank, ranks_[rank].device,
                rootCauseFinder_.nameOf(rank) + " is cut off: it heard nothing of " + host +
                    " for " + durationText(silent) +
                    " and gave it up, although the coordinator runs and receives its messages: "
                    "packets from the coordinator to it are "
                    "lost in the network"),
        now);
  decide(now);
}

void Job::progressed(uint32_t rank, const Progress &progress, double now) {
  RankProgress &p = ranks_[rank].progress;
  if (progress.counter() != p.counter)
    progressAt_ = now;
  p.counter = progress.counter();
  p.inProgress = progress.in_progress();
  p.where = withoutIs(progress.where());
  p.step = progress.step();
  p.instruction = progress.instruction();
  rootCauseFinder_.setWhere(rank, p.inProgress ? p.where : "");
}

void Job::contributed(uint32_t rank, const Contribution &contribution, double now) {
  const std::string &name = contribution.name();
  auto found = exchanges_.find(name);
  if (found == exchanges_.end() && exchanges_.size() >= kExchangesAtOnce)
    return broken(
        rank, "more than " + std::to_string(kExchangesAtOnce) + " exchanges at the same time", now);
  Exchange &exchange = found != exchanges_.end() ? found->second : exchanges_[name];
  exchange.values.resize(settings_.worldSize);
  if (exchange.values[rank])
    return broken(rank, "a second contribution to the exchange '" + name + "'", now);
  exchange.values[rank] = contribution.value();
  if (++exchange.count == settings_.worldSize) {
    completed(name, exchange);
    exchanges_.erase(name);
    return;
  }
  checkExchanges(now);
}

void Job::completed(const std::string &name, const Exchange &exchange) {
  Message message;
  size_t bytes = 0;
  auto flush = [&] {
    SharedFrame frame = encode(message);
    for (uint32_t rank = 0; rank < settings_.worldSize; ++rank)
      outbox_.send(rank, frame, false);
    bytes = 0;
  };
  for (uint32_t rank = 0; rank < settings_.worldSize; ++rank) {
    const std::string &value = *exchange.values[rank];
    if (bytes != 0 && bytes + value.size() > kValuesBytes)
      flush();
    if (bytes == 0) {
      message.Clear();
      message.mutable_contributions()->set_name(name);
      message.mutable_contributions()->set_first(rank);
    }
    message.mutable_contributions()->add_values(value);
    bytes += value.size() + 16;
  }
  flush();
}

void Job::checkExchanges(double now) {
  if (rootCause_)
    return;
  for (const auto &[name, exchange] : exchanges_) {
    uint32_t waiting = kNoRank, absent = kNoRank;
    for (uint32_t rank = 0; rank < settings_.worldSize; ++rank) {
      if (exchange.values[rank] && waiting == kNoRank)
        waiting = rank;
      if (!exchange.values[rank] && ranks_[rank].state == State::Left && absent == kNoRank)
        absent = rank;
    }
    if (waiting == kNoRank || absent == kNoRank)
      continue;
    bool stopped = stop_ != Stop::None || ranks_[absent].stopped;
    Failure failure = foundBy(Failure::OwnError, stopped ? ErrorKind::User : ErrorKind::Internal,
                              absent, ranks_[absent].device,
                              rootCauseFinder_.nameOf(absent) +
                                  " ended without taking part in the exchange '" + name +
                                  "', in which " + rootCauseFinder_.nameOf(waiting) +
                                  " waits for it" + (stopped ? ": the run was asked to end" : ""));
    failure.exitCode = stopped ? kStoppedCode : 2;
    rootCauseFinder_.found(failure, now);
    decide(now);
    return;
  }
}

void Job::report(uint32_t rank, const Message &message, double now) {
  SharedFrame frame = encode(message);
  if (message.report().to_all())
    for (uint32_t other = 1; other < settings_.worldSize; ++other)
      if (ranks_[other].state == State::Working)
        outbox_.send(other, frame, true);
  if (ranks_[0].state == State::Working) {
    outbox_.send(0, frame, true);
  } else if (ranks_[0].state == State::Absent) {
    if ((earlyBytes_ += frame->size()) > kEarlyBytes)
      return broken(rank, "more reports than can be kept until rank 0 joins", now);
    early_.push_back(frame);
  }
}

void Job::left(uint32_t rank, double now) {
  Rank &r = ranks_[rank];
  r.state = State::Left;
  r.answered = true;
  r.progress = {};
  rootCauseFinder_.cannotReport(rank);
  if (r.connected) {
    Message goodbye;
    goodbye.mutable_goodbye();
    sendTo(rank, goodbye);
  }
  decideStop();
  checkExchanges(now);
  updateOver(now);
}

void Job::closed(uint32_t rank, const std::string &why, double now) {
  Rank &r = ranks_[rank];
  if (!r.connected)
    return;
  r.connected = false;
  rootCauseFinder_.cannotReport(rank);
  if (r.state == State::Working) {
    r.state = State::Failed;
    if (!rootCause_)
      rootCauseFinder_.closed(rank, why, now);
  }
  decide(now);
  updateOver(now);
}

void Job::broken(uint32_t rank, const std::string &why, double now) {
  rootCauseFinder_.found(foundBy(Failure::OwnError, ErrorKind::Internal, rank, ranks_[rank].device,
                                 rootCauseFinder_.nameOf(rank) +
                                     " sent the coordinator an invalid message: " + why +
                                     "; are all ranks of one version of Zorse?"),
                         now);
  decide(now);
}

void Job::processEnded(uint32_t rank, bool failed, const std::string &how, int exitCode,
                       double now) {
  Rank &r = ranks_[rank];
  if (!failed && r.state == State::Left)
    return;
  r.stopped = exitCode == kStoppedCode;
  if (!failed && r.state == State::Absent) {
    left(rank, now); // the other ranks do not depend on it, unless they wait for it
    return;
  }
  bool hadJoined = r.state != State::Absent;
  if (!hadJoined)
    rootCauseFinder_.cannotReport(rank);
  std::string after = r.state == State::Left ? " after it had finished"
                      : !failed              ? " without saying goodbye"
                                             : "";
  if (!rootCause_)
    rootCauseFinder_.processEnded(rank, how + after, exitCode, hadJoined, now);
  if (r.state != State::Left)
    r.state = State::Failed;
  decide(now);
  updateOver(now);
}

void Job::requestStop(double) {
  if (stop_ != Stop::None || rootCause_)
    return;
  stop_ = Stop::Asking;
  Message query;
  query.mutable_stop_query();
  SharedFrame frame = encode(query);
  for (uint32_t rank = 0; rank < settings_.worldSize; ++rank)
    if (ranks_[rank].state == State::Working)
      outbox_.send(rank, frame, true);
  decideStop();
}

void Job::decideStop() {
  if (stop_ != Stop::Asking || rootCause_)
    return;
  for (const Rank &r : ranks_)
    if (r.state == State::Failed || (r.state == State::Working && !r.answered))
      return;
  // Ranks that have not joined have entered no step. They learn the decision from their welcome.
  for (const Rank &r : ranks_)
    lastStep_ = std::max(lastStep_, r.highest);
  stop_ = Stop::Decided;
  Message decision;
  decision.mutable_stop_decision()->set_last(lastStep_);
  SharedFrame frame = encode(decision);
  for (uint32_t rank = 0; rank < settings_.worldSize; ++rank)
    if (ranks_[rank].state == State::Working)
      outbox_.send(rank, frame, true);
}

void Job::tick(double now, const std::function<std::string()> &refused, double elapsed) {
  if (!rootCause_) {
    checkJoined(std::max(now, elapsed), now, refused);
    checkHeartbeats(now);
    checkLinks(now);
    checkProgress(now);
  }
  decide(now);
  if (rootCause_)
    notify(now);
  updateOver(now);
}

void Job::decide(double now) {
  if (rootCause_ || !rootCauseFinder_.any())
    return;
  rootCause_ = rootCauseFinder_.rootCause(now);
  if (!rootCause_)
    return;
  rootCauseAt_ = now;
  exchanges_.clear();
  for (uint32_t rank = 0; rank < settings_.worldSize; ++rank)
    if (ranks_[rank].connected)
      outbox_.giveUp(rank);
  notify(now);
}

void Job::notify(double now) {
  Message message;
  *message.mutable_root_cause()->mutable_failure() = toMessage(*rootCause_);
  SharedFrame frame;
  bool othersKnow = true;
  for (uint32_t rank = 0; rank < settings_.worldSize; ++rank) {
    Rank &r = ranks_[rank];
    if (rank == settings_.host || r.state == State::Left || !r.connected)
      continue;
    if (!r.sentRootCause) {
      if (!frame)
        frame = encode(message);
      outbox_.send(rank, frame, true);
      r.sentRootCause = true;
    }
    othersKnow &= r.acknowledged || r.silent;
  }
  if (settings_.host == kNoRank || !(othersKnow || now - rootCauseAt_ > kConfirmSeconds))
    return;
  Rank &host = ranks_[settings_.host];
  if (host.connected && host.state != State::Left && !host.sentRootCause) {
    outbox_.send(settings_.host, frame ? frame : encode(message), true);
    host.sentRootCause = true;
  }
}

void Job::updateOver(double now) {
  if (over_)
    return;
  bool allLeft = true, allTold = true;
  for (const Rank &r : ranks_) {
    allLeft &= r.state == State::Left;
    allTold &= r.state == State::Left || !r.connected || r.silent || r.acknowledged;
  }
  over_ = rootCause_ ? allTold || now - rootCauseAt_ > 2 * kConfirmSeconds
                     : allLeft && !rootCauseFinder_.any();
}
