// A rank's end of the control connection. One thread owns the connection, and only this thread
// concludes that the job has failed. Callers add messages to a queue and wait for the results that
// the thread publishes.
#include "Job.h"
#include "Join.h"

#include "zorse/Base/Format.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <condition_variable>
#include <mutex>
#include <set>
#include <thread>

#include <poll.h>

using namespace zorse::control;
using namespace zorse::runtime;

namespace {

constexpr size_t kReadAtOnce = size_t(4) << 20;
/// Longest time for which leave() waits for the coordinator's answer.
constexpr double kCloseSeconds = 5;

std::string secondsText(double value) { return zorse::format("%.1f s", value); }

} // namespace

class Member::Implementation {
public:
  Implementation(MemberOptions options, JoinResult result)
      : options_(std::move(options)), connection_(std::move(result.connection)),
        welcome_(result.welcome), endpoint_(result.endpoint),
        clock_(2 * welcome_.heartbeat_seconds()), progress_(options_.progress) {
    if (welcome_.stopping()) {
      asked_ = true;
      lastStep_ = welcome_.last_step();
    }
    lastHeardSeconds_ = clock_.now();
    connection_->setDeadline(welcome_.heartbeat_timeout_seconds());
  }

  Status start() {
    if (!waker_.valid())
      return userError("rank " + std::to_string(options_.rank) +
                       ": no file descriptor is left for the control connection (ulimit -n)");
    Result<std::thread> thread = startThread([this] { run(); });
    if (thread.failed())
      return thread.error();
    thread_ = std::move(*thread);
    return Status::success();
  }

  ~Implementation() {
    if (!thread_.joinable())
      return;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      ending_ = true;
    }
    waker_.wake();
    thread_.join();
  }

  uint32_t rank() const { return options_.rank; }
  uint32_t size() const { return options_.worldSize; }
  uint64_t generation() const { return welcome_.generation(); }

  Result<std::vector<std::string>> exchange(const std::string &name, const std::string &mine) {
    if (name.size() > kNameBytes || mine.size() > kValueBytes)
      return internalError("exchange '" + name.substr(0, 64) + "': " + std::to_string(mine.size()) +
                           " bytes are to be exchanged, at most " + std::to_string(kValueBytes) +
                           " can be");
    std::unique_lock<std::mutex> lock(mutex_);
    if (goodbye_ != Goodbye::No)
      return internalError("exchange '" + name + "': this rank has left the job");
    if (!names_.insert(name).second)
      return internalError("exchange '" + name + "': the name has been used before");
    Message message;
    message.mutable_contribution()->set_name(name);
    message.mutable_contribution()->set_value(mine);
    Exchange &exchange = exchanges_[name]; // map elements have stable addresses
    queue(message, /*lasting=*/false);
    changed_.wait(lock, [&] { return rootCause_ || exchange.values.size() == options_.worldSize; });
    bool complete = exchange.values.size() == options_.worldSize;
    std::vector<std::string> values = std::move(exchange.values);
    exchanges_.erase(name);
    if (!complete)
      return Error{rootCause_->kind, rootCause_->message};
    return values;
  }

  bool enter(uint64_t step) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock,
                  [&] { return rootCause_ || lastStep_ || !asked_ || goodbye_ != Goodbye::No; });
    if (rootCause_ || goodbye_ != Goodbye::No || (lastStep_ && step > *lastStep_))
      return false;
    highest_ = std::max(highest_, step);
    return true;
  }

  void requestStop() {
    Message message;
    message.mutable_stop_request();
    std::lock_guard<std::mutex> lock(mutex_);
    if (goodbye_ == Goodbye::No)
      queue(message);
  }

  void report(const std::string &bytes, bool toAll) {
    Message message;
    message.mutable_report()->set_value(bytes);
    message.mutable_report()->set_to_all(toAll);
    std::lock_guard<std::mutex> lock(mutex_);
    if (goodbye_ == Goodbye::No && bytes.size() <= kValueBytes)
      queue(message);
  }

  void setProgress(std::function<RankProgress()> progress) {
    std::lock_guard<std::mutex> lock(progressMutex_);
    progress_ = std::move(progress);
  }

  Failure fail(const Failure &mine) {
    Failure failure = mine;
    failure.rank = options_.rank;
    failure.device = options_.device;
    if (failure.peer >= options_.worldSize)
      failure.peer = kNoRank;
    bool fromCallback = isControlThread();
    if (failure.where.empty() && !fromCallback)
      failure.where = whereNow();
    std::unique_lock<std::mutex> lock(mutex_);
    if (goodbye_ == Goodbye::Answered)
      return failure;
    if (!own_ && !rootCause_) {
      own_ = failure;
      ownAt_ = monotonicSeconds();
      Message message;
      *message.mutable_failed() = toMessage(failure);
      queue(message);
    }
    if (fromCallback)
      return rootCause_ ? *rootCause_ : failure;
    changed_.wait(lock, [&] { return rootCause_.has_value(); }); // the control thread enforces the
                                                                 // timeouts
    return *rootCause_;
  }

  void leave() {
    std::unique_lock<std::mutex> lock(mutex_);
    if (rootCause_ || goodbye_ != Goodbye::No)
      return;
    goodbye_ = Goodbye::Said;
    Message message;
    message.mutable_leave()->set_highest(highest_);
    queue(message);
    changed_.wait_for(lock, std::chrono::duration<double>(kCloseSeconds),
                      [&] { return rootCause_ || goodbye_ == Goodbye::Answered; });
    goodbye_ = Goodbye::Answered;
  }

private:
  enum class Goodbye : uint8_t { No, Said, Answered };
  struct Exchange {
    std::vector<std::string> values; ///< values in rank order, as far as received
  };

  struct Outgoing {
    SharedFrame frame;
    bool lasting;
  };

  /// Requires mutex_.
  /// \param lasting  false: may be dropped when this rank has failed
  void queue(const Message &message, bool lasting = true) {
    if (rootCause_)
      return;
    outgoing_.push_back({encode(message), lasting});
    waker_.wake();
  }

  bool isControlThread() {
    std::lock_guard<std::mutex> lock(mutex_);
    return std::this_thread::get_id() == controlThread_;
  }

  std::optional<RankProgress> progressNow() {
    std::lock_guard<std::mutex> lock(progressMutex_);
    return progress_ ? std::optional<RankProgress>(progress_()) : std::nullopt;
  }

  std::string whereNow() {
    std::optional<RankProgress> progress = progressNow();
    return progress && progress->inProgress ? progress->where : "";
  }

  // ---- the control thread ----
  void run() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      controlThread_ = std::this_thread::get_id();
    }
    double heartbeatAt = 0;
    while (!concluded_) {
      takeOutgoing();
      connection_->flush();
      double wait = waitSeconds(heartbeatAt);
      pollfd fds[2] = {
          {connection_->fd(), short(POLLIN | (connection_->pending() ? POLLOUT : 0)), 0},
          {waker_.get(), POLLIN, 0}};
      ::poll(fds, 2, std::max(1, int(std::ceil(wait * 1000))));
      if (fds[1].revents)
        waker_.drain();
      uint64_t before = connection_->received();
      bool open = !(fds[0].revents & (POLLIN | POLLHUP | POLLERR)) ||
                  connection_->receive(kReadAtOnce);
      double now = clock_.advance();
      if (connection_->received() != before)
        lastHeardSeconds_ = now;
      if (!readMessages())
        return;
      if (isEnding())
        return finish();
      if (!open)
        return coordinatorGone();
      if (double silence = now - lastHeardSeconds_, deadline = welcome_.heartbeat_timeout_seconds();
          silence > deadline &&
          (silence > deadline + sendingAgainSeconds(deadline) || !connection_->isSendingAgain()))
        return coordinatorSilent();
      if (ownIsOverdue())
        return conclude(ownStory());
      if (now >= heartbeatAt) {
        sendHeartbeat();
        heartbeatAt = now + welcome_.heartbeat_seconds();
      }
    }
  }

  double waitSeconds(double heartbeatAt) {
    double wait = std::clamp(heartbeatAt - clock_.now(), 0.001, welcome_.heartbeat_seconds());
    std::lock_guard<std::mutex> lock(mutex_);
    if (own_)
      wait = std::min(wait, 0.02);
    return wait;
  }

  void takeOutgoing() {
    std::lock_guard<std::mutex> lock(mutex_);
    for (Outgoing &out : outgoing_)
      connection_->queue(std::move(out.frame), out.lasting);
    outgoing_.clear();
    if (own_)
      connection_->giveUp(); // the failure report must not wait behind megabytes that no rank will
                             // use
  }

  bool isEnding() {
    std::lock_guard<std::mutex> lock(mutex_);
    return ending_;
  }

  bool ownIsOverdue() {
    std::lock_guard<std::mutex> lock(mutex_);
    return own_ && monotonicSeconds() - ownAt_ > kRootCauseSeconds;
  }

  void sendHeartbeat() {
    connection_->keepAlive();
    if (connection_->pending()) // queued data is itself a sign of life
      return;
    Message message;
    Heartbeat &heartbeat = *message.mutable_heartbeat();
    if (std::optional<RankProgress> progress = progressNow()) {
      Progress &p = *heartbeat.mutable_progress();
      p.set_counter(progress->counter);
      p.set_in_progress(progress->inProgress);
      p.set_where(progress->where.substr(0, kTextBytes));
      p.set_step(progress->step);
      p.set_instruction(progress->instruction);
      for (const UnresponsivePeer &silent : progress->unresponsive) {
        UnresponsiveRank &silence = *heartbeat.add_unresponsive();
        silence.set_rank(silent.peer);
        silence.set_seconds(silent.seconds);
        silence.set_undelivered(silent.undelivered);
      }
    }
    connection_->queue(encode(message));
    connection_->flush();
  }

  /// Sends the remaining messages, as far as the socket accepts them without waiting.
  void finish() {
    takeOutgoing();
    connection_->flush();
  }

  /// Returns false if the thread is done.
  bool readMessages() {
    FrameReader &reader = connection_->reader();
    while (std::optional<std::string_view> frame = reader.next()) {
      Result<Message> message =
          parseMessage(*frame, COORDINATOR, HandshakeState::Work, options_.worldSize);
      if (message.failed()) {
        nonsense(message.message());
        return false;
      }
      if (!handle(*message))
        return false;
    }
    if (reader.broken()) {
      nonsense("a frame that is too large");
      return false;
    }
    return true;
  }

  bool handle(Message &message) {
    switch (message.what_case()) {
    case Message::kContributions:
      return contributed(*message.mutable_contributions());
    case Message::kReport:
      if (options_.reported)
        options_.reported(message.report().value());
      return true;
    case Message::kRootCause: {
      Message heard;
      heard.mutable_root_cause_acknowledged();
      connection_->queue(encode(heard));
      connection_->flush();
      conclude(ofThisRank(fromMessage(message.root_cause().failure())));
      return false;
    }
    case Message::kStopQuery: {
      Message answer;
      std::lock_guard<std::mutex> lock(mutex_);
      asked_ = true;
      answer.mutable_stop_answer()->set_highest(highest_);
      queue(answer);
      return true;
    }
    case Message::kStopDecision: {
      std::lock_guard<std::mutex> lock(mutex_);
      asked_ = true;
      lastStep_ = message.stop_decision().last();
      changed_.notify_all();
      return true;
    }
    case Message::kGoodbye: {
      std::lock_guard<std::mutex> lock(mutex_);
      goodbye_ = Goodbye::Answered;
      changed_.notify_all();
      return true;
    }
    default:
      return true; // heartbeats
    }
  }

  bool contributed(Contributions &some) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      auto found = exchanges_.find(some.name());
      if (found != exchanges_.end() && some.first() == found->second.values.size()) {
        std::vector<std::string> &values = found->second.values;
        for (std::string &value : *some.mutable_values())
          values.push_back(std::move(value));
        if (values.size() == options_.worldSize)
          changed_.notify_all();
        return true;
      }
    }
    nonsense("contributions to an exchange that is not in progress");
    return false;
  }

  // ---- end of the job ----
  /// Rewrites a verdict about this rank for this rank's user.
  Failure ofThisRank(Failure failure) const {
    if (failure.rank != options_.rank || failure.cause != Failure::MissedHeartbeats)
      return failure;
    bool stopped = clock_.longestPause() > welcome_.heartbeat_timeout_seconds() / 2;
    failure.message += ". This is that rank: " +
                       (stopped
                            ? "it was stopped or starved for " + secondsText(clock_.longestPause())
                            : std::string("it was cut off")) +
                       ", the job has ended without it, and this process must end";
    return failure;
  }

  std::string coordinatorName() const {
    if (!welcome_.has_coordinator_rank())
      return "the launcher at " + describe(endpoint_);
    return "rank " + std::to_string(welcome_.host()) +
           (welcome_.host_device().empty() ? "" : " (device " + welcome_.host_device() + ")") +
           ", which holds the coordinator,";
  }

  void nonsense(const std::string &what) {
    Failure failure;
    failure.kind = ErrorKind::Internal;
    failure.rank = options_.rank;
    failure.device = options_.device;
    failure.message = "rank " + std::to_string(options_.rank) + ": " + coordinatorName() +
                      " sent an invalid message: " + what +
                      "; are all ranks of one version of Zorse?";
    conclude(failure);
  }

  Failure aboutCoordinator(Failure::Cause cause, const std::string &what) {
    Failure failure;
    failure.cause = cause;
    failure.rank = welcome_.has_coordinator_rank() ? welcome_.host() : kNoRank;
    failure.device = welcome_.host_device();
    bool reported;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      reported = own_.has_value();
    }
    std::string where;
    if (reported) {
      Failure own = ownStory();
      if (own.peer == kNoRank && own.cause != Failure::Disconnected)
        return own; // this rank's own error came first
      where = own.where;
    } else {
      where = withoutIs(whereNow());
    }
    failure.message = coordinatorName() + " " + what + "; " + nameOfThis() + " noticed" +
                      (where.empty() ? "" : " in " + where);
    return failure;
  }

  std::string nameOfThis() const {
    return "rank " + std::to_string(options_.rank) +
           (options_.device.empty() ? "" : " (device " + options_.device + ")");
  }

  /// The failure passed to `fail`, if no coordinator or peer can report a better cause.
  Failure ownStory() {
    std::lock_guard<std::mutex> lock(mutex_);
    Failure own = *own_;
    own.where = withoutIs(own.where);
    bool placed = own.where.empty() || own.message.find(own.where) != std::string::npos;
    own.message = nameOfThis() + (placed ? "" : ", " + own.where) + ": " + own.message;
    return own;
  }

  void coordinatorGone() {
    double pause = clock_.longestPause();
    bool stopped = pause > welcome_.heartbeat_timeout_seconds();
    conclude(aboutCoordinator(
        Failure::Died,
        "has died: its control connection ended (" + connection_->why() + ")" +
            (stopped ? ", while this rank was itself stopped for " + secondsText(pause) : "")));
  }

  void coordinatorSilent() {
    Message note;
    note.mutable_coordinator_lost()->set_seconds(welcome_.heartbeat_timeout_seconds());
    connection_->giveUp();
    connection_->queue(encode(note));
    connection_->flush();
    conclude(aboutCoordinator(
        Failure::MissedHeartbeats,
        "is lost: nothing was heard of it for " +
            secondsText(welcome_.heartbeat_timeout_seconds()) +
            " (its process is stopped or starved, its machine or its network is down)"));
  }

  /// Publishes the failure of the job. This thread ends after it.
  void conclude(const Failure &rootCause) {
    concluded_ = true;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (goodbye_ == Goodbye::Answered || ending_)
        return; // the reports are no longer needed
    }
    if (options_.failed)
      options_.failed(rootCause);
    std::lock_guard<std::mutex> lock(mutex_);
    rootCause_ = rootCause;
    changed_.notify_all();
  }

  const MemberOptions options_;
  std::unique_ptr<Connection> connection_;
  const JoinAccepted welcome_;
  const Endpoint endpoint_;
  PauseTolerantClock clock_;
  double lastHeardSeconds_ = 0;
  bool concluded_ = false;
  Waker waker_;

  std::mutex progressMutex_;
  std::function<RankProgress()> progress_;

  std::mutex mutex_; ///< guards what follows
  std::condition_variable changed_;
  std::vector<Outgoing> outgoing_;
  std::map<std::string, Exchange> exchanges_;
  std::set<std::string> names_;
  uint64_t highest_ = 0;             ///< last step entered
  bool asked_ = false;               ///< an early stop is being decided
  std::optional<uint64_t> lastStep_; ///< decided last step
  std::optional<Failure> own_;       ///< reported by `fail`
  double ownAt_ = 0;
  std::optional<Failure> rootCause_;
  Goodbye goodbye_ = Goodbye::No;
  bool ending_ = false;
  std::thread::id controlThread_;

  std::thread thread_; ///< last: uses all of the above
};

Result<std::unique_ptr<Member>> Member::join(MemberOptions options) {
  if (options.key.secret.size() < 16)
    return userError("the job's secret has " + std::to_string(options.key.secret.size()) +
                     " bytes, expected at least 16");
  if (options.key.job.size() > kJobBytes || options.device.size() > kDeviceBytes)
    return userError("the names of the job and of the device may have " +
                     std::to_string(kJobBytes) + " bytes, found " +
                     std::to_string(options.key.job.size()) + " and " +
                     std::to_string(options.device.size()));
  Result<JoinResult> result = joinJob(options);
  if (result.failed())
    return result.error();
  auto implementation = std::make_unique<Implementation>(std::move(options), std::move(*result));
  if (Status failed = implementation->start(); failed.failed())
    return failed;
  return std::unique_ptr<Member>(new Member(std::move(implementation)));
}

Member::Member(std::unique_ptr<Implementation> implementation)
    : implementation_(std::move(implementation)) {}
Member::~Member() = default;
uint32_t Member::rank() const { return implementation_->rank(); }
uint32_t Member::size() const { return implementation_->size(); }
uint64_t Member::generation() const { return implementation_->generation(); }
Result<std::vector<std::string>> Member::allGatherBytes(const std::string &name,
                                                        const std::string &mine) {
  return implementation_->exchange(name, mine);
}
bool Member::beginIteration(uint64_t step) { return implementation_->enter(step); }
void Member::requestStop() { implementation_->requestStop(); }
void Member::setProgress(std::function<RankProgress()> progress) {
  implementation_->setProgress(std::move(progress));
}
void Member::report(const std::string &bytes, bool toAll) { implementation_->report(bytes, toAll); }
Failure Member::fail(const Failure &mine) { return implementation_->fail(mine); }
void Member::leave() { implementation_->leave(); }
