#include "zorse/runtime/Launch.h"

#include "OrphanReaper.h"
#include "RankProcess.h"
#include "Signals.h"
#include "zorse/runtime/StartCommand.h"

#include "zorse/Base/Format.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include <poll.h>
#include <sys/random.h>
#include <unistd.h>

using namespace zorse::runtime;
using namespace zorse::runtime::launching;

namespace {

constexpr int kConnectionLost = 255; ///< exit code of ssh if its connection ends
constexpr int kLostNode = 2;         ///< exit code of a job that has lost a node
constexpr int kStopped = 130;        ///< exit code of a run that ended early on request
constexpr double kTermSeconds = 0.5; ///< seconds after a failure in which ranks that were notified
                                     ///< may end without a signal
constexpr double kKillSeconds = 2.0; ///< seconds after a failure until SIGKILL
constexpr double kGiveUpSeconds = 30.0; ///< seconds after SIGKILL; the kernel may be unable to end
                                        ///< a process (its disk or file server hangs)
constexpr double kDrainSeconds = 0.3;   ///< seconds after the last rank, for output pipes that a
                                        ///< process outside its group holds open

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::string firstLine(const std::string &text) { return text.substr(0, text.find('\n')); }

/// Searches a program in PATH like a shell. Returns "" if it is not found.
std::string findProgram(const std::string &name) {
  if (name.find('/') != std::string::npos)
    return name;
  const char *path = ::getenv("PATH");
  std::string directories = path ? path : "/usr/bin:/bin";
  for (size_t begin = 0; begin <= directories.size();) {
    size_t end = std::min(directories.find(':', begin), directories.size());
    std::string directory = directories.substr(begin, end - begin),
                program = (directory.empty() ? "." : directory) + "/" + name;
    if (::access(program.c_str(), X_OK) == 0)
      return program;
    begin = end + 1;
  }
  return "";
}

/// One call of launch().
class Launcher {
public:
  Launcher(const LaunchOptions &options, JobKey key, std::string program, Signals &signals,
           OrphanReaper &reaper)
      : o_(options), key_(std::move(key)), program_(std::move(program)), signals_(signals),
        reaper_(reaper), out_(options.out), err_(options.err) {
    colours_ = ::isatty(options.err) && !::getenv("NO_COLOR");
  }

  int run();

private:
  struct RootCause {
    uint32_t rank = kNoRank;
    int code = 2;
    std::string text; ///< "rank 2 (device t4:0) was killed by signal 9 (Killed)"
  };

  int runOnce(uint64_t restarts);
  Status startRanks(uint64_t generation, uint64_t restarts);
  std::vector<std::string> environment(uint32_t rank, uint64_t generation, uint64_t restarts) const;
  std::pair<uint32_t, uint32_t> placeOnNode(uint32_t rank) const;
  void startElsewhere(RankProcess::Options &options) const;
  void turn(double seconds);
  void takeSignals();
  void reap();
  void noticeEnd(RankProcess &rank);
  void escalate();
  void endLingering();
  void fail(RootCause cause);
  std::optional<RootCause> rootCause() const;
  bool anyRunning() const;
  bool over() const;
  void pause(double seconds);
  void say(const std::string &text) { err_.push(text + "\n"); }
  std::string name(uint32_t rank) const;
  std::string prefix(uint32_t rank) const;

  bool startsAgain(uint64_t start, int code);
  bool restartsAfterFailure(uint64_t restart, int code);
  /// Whether a new start may help after a failure with this exit code: not against errors in the
  /// input, non-finite numbers (again) and programs that cannot be run.
  bool mends(int code) const {
    return code != 1 && code != 3 && code != 126 && code != 127 && !lost_;
  }

  LaunchOptions o_;
  JobKey key_;
  std::string program_;
  Signals &signals_;
  OrphanReaper &reaper_;
  OutputQueue out_, err_;
  bool colours_ = false;
  size_t widest_ = 0;

  // For all starts
  double stopSignalAt_ = 0; ///< time of the last stop signal that counted
  int stopSignals_ = 0;     ///< number of SIGINT, SIGTERM and SIGHUP, and of SIGUSR1 if it was the
                            ///< first

  // For the current start
  std::unique_ptr<Coordinator> coordinator_;
  std::vector<std::unique_ptr<RankProcess>> ranks_;
  std::optional<RootCause> failure_;
  double failedAt_ = 0, killedAt_ = 0, lastEndAt_ = 0, allLeftAt_ = 0;
  bool lingered_ = false; ///< some ranks were killed after all had left the job and finished their
                          ///< work
  bool termSent_ = false, someStopped_ = false, stopAsked_ = false, lost_ = false;
  std::vector<uint32_t> lostRanks_, leavingRanks_; ///< LaunchOutcome::lost and leaving
  double changeAskedAt_ = 0;
  bool changeAsked_ = false; ///< the ranks were asked to stop for a change of devices
};

std::string Launcher::name(uint32_t rank) const {
  if (rank == kNoRank)
    return "the launcher";
  return "rank " + std::to_string(rank) +
         (rank < o_.deviceNames.size() ? " (device " + o_.deviceNames[rank] + ")" : "");
}

std::string Launcher::prefix(uint32_t rank) const {
  std::string text =
      "[" + (rank < o_.deviceNames.size() ? o_.deviceNames[rank] : "rank " + std::to_string(rank)) +
      "]";
  std::string padding(rank < o_.deviceNames.size()
                          ? widest_ - std::min(widest_, o_.deviceNames[rank].size()) + 1
                          : 1,
                      ' ');
  if (colours_) {
    const char *colours[] = {"36", "33", "35", "32", "34", "31"};
    text = std::string("\033[") + colours[rank % 6] + "m" + text + "\033[0m";
  }
  return text + padding;
}

/// Returns the index of a rank among the ranks of its node, and their number.
std::pair<uint32_t, uint32_t> Launcher::placeOnNode(uint32_t rank) const {
  if (o_.startCommand.empty())
    return {rank - o_.firstRank, o_.localRanks};
  const std::string &node = o_.nodeNames[rank];
  const auto begin = o_.nodeNames.begin();
  return {uint32_t(std::count(begin, begin + rank, node)),
          uint32_t(std::count(begin, o_.nodeNames.end(), node))};
}

/// Lets the user's command start the rank on its node.
void Launcher::startElsewhere(RankProcess::Options &options) const {
  std::vector<std::string> variables;
  for (const std::string &entry : options.environment)
    if (entry.rfind("ZORSE_", 0) == 0 && entry.rfind("ZORSE_SECRET=", 0) != 0)
      variables.push_back(entry);
  std::vector<std::string> words = options.arguments;
  words.front() = options.program;
  std::error_code none;
  const std::string directory = std::filesystem::current_path(none).string();
  options.arguments = {
      "sh", "-c",
      startCommandLine(o_.startCommand, o_.nodeNames[options.rank], directory, variables, words)};
  options.program = "/bin/sh";
}

std::vector<std::string> Launcher::environment(uint32_t rank, uint64_t generation,
                                               uint64_t restarts) const {
  Environment all = currentEnvironment();
  all.erase("ZORSE_LAUNCHER");
  all["ZORSE_RANK"] = std::to_string(rank);
  all["ZORSE_WORLD_SIZE"] = std::to_string(o_.worldSize);
  const auto [localRank, localRanks] = placeOnNode(rank);
  all["ZORSE_LOCAL_RANK"] = std::to_string(localRank);
  all["ZORSE_LOCAL_WORLD_SIZE"] = std::to_string(localRanks);
  all["ZORSE_COORDINATOR"] = "launcher";
  all["ZORSE_JOB"] = key_.job;
  all["ZORSE_SECRET"] = key_.secret;
  all["ZORSE_GENERATION"] = std::to_string(generation);
  all["ZORSE_RESTARTS"] = std::to_string(restarts);
  for (const auto &[name, value] : o_.environment)
    all[name] = value;
  if (coordinator_) {
    const std::string &listens = o_.listenAddress;
    std::string host = listens.empty() || listens == "0.0.0.0" ? "127.0.0.1"
                       : listens == "::"                       ? "::1"
                                                               : listens;
    all["ZORSE_STORE"] = endpointsText({{host, coordinator_->port()}});
  } else {
    all["ZORSE_STORE"] = endpointsText(o_.coordinator);
  }
  std::vector<std::string> entries;
  for (const auto &[key, value] : all)
    entries.push_back(key + "=" + value);
  return entries;
}

Status Launcher::startRanks(uint64_t generation, uint64_t restarts) {
  widest_ = 0;
  for (uint32_t i = 0; i < o_.localRanks; ++i)
    if (o_.firstRank + i < o_.deviceNames.size())
      widest_ = std::max(widest_, o_.deviceNames[o_.firstRank + i].size());
  for (uint32_t rank = o_.firstRank; rank < o_.firstRank + o_.localRanks; ++rank) {
    RankProcess::Options options;
    options.rank = rank;
    options.program = program_;
    options.arguments = o_.command;
    options.environment = environment(rank, generation, restarts);
    options.signalMask = signals_.maskBefore();
    options.errPrefix = prefix(rank);
    if (!o_.startCommand.empty())
      startElsewhere(options);
    options.outPrefix = rank == 0 && o_.plainRankZero ? "" : options.errPrefix;
    Result<std::unique_ptr<RankProcess>> started = RankProcess::start(options, out_, err_);
    if (started.failed())
      return started.error();
    reaper_.add((*started)->pid());
    ranks_.push_back(std::move(*started));
  }
  return Status::success();
}

void Launcher::fail(RootCause cause) {
  failure_ = std::move(cause);
  failedAt_ = now();
}

/// The root cause, as the coordinator found it. It may be a different rank than the one whose
/// process ended first. The exit code is that of the rank's process, if it ended without a signal
/// of the launcher.
std::optional<Launcher::RootCause> Launcher::rootCause() const {
  std::optional<Failure> verdict = coordinator_ ? coordinator_->failure() : std::nullopt;
  if (!verdict)
    return failure_;
  RootCause cause{verdict->rank, verdict->exitCode, firstLine(verdict->message)};
  for (const std::unique_ptr<RankProcess> &rank : ranks_)
    if (rank->rank() == verdict->rank && !rank->running() && !rank->endedByUs() &&
        rank->exitCode() != 0) {
      cause.code = rank->exitCode();
      if (rank->killed() && cause.text.find(rank->how()) == std::string::npos)
        cause.text = name(rank->rank()) + " " + rank->how();
    }
  if (cause.text.empty())
    cause.text = name(cause.rank) + " failed";
  return cause;
}

void Launcher::takeSignals() {
  for (int signal : signals_.take()) {
    if (signal == SIGCHLD)
      continue;
    if (signal == SIGTSTP) {
      say("zorse-run: ignoring SIGTSTP: suspended ranks would miss heartbeats and fail the job. "
          "Press Ctrl-C to stop after the current step");
      continue;
    }
    if (stopSignals_ > 0 && (signal == SIGUSR1 || now() - stopSignalAt_ < kOneRequestSeconds))
      continue;
    ++stopSignals_;
    stopSignalAt_ = now();
    if (ranks_.empty())
      continue;
    if (stopSignals_ == 1 && !failure_) {
      stopAsked_ = true;
      say(std::string("zorse-run: ") + (signal == SIGINT ? "interrupted" : "asked to end") +
          ": finishing the current steps; repeat to end the run immediately");
      if (o_.onSignal)
        o_.onSignal();
      else if (coordinator_)
        coordinator_->requestStop();
      else // the ranks notify the coordinator
        for (const std::unique_ptr<RankProcess> &rank : ranks_)
          rank->signalProcess(SIGTERM);
    } else if (killedAt_ == 0) {
      killedAt_ = now();
      for (const std::unique_ptr<RankProcess> &rank : ranks_)
        rank->signalGroup(SIGKILL);
    }
  }
}

void Launcher::reap() {
  std::vector<RankProcess *> ended;
  for (const std::unique_ptr<RankProcess> &rank : ranks_)
    if (rank->reap())
      ended.push_back(rank.get());
  // If several processes have ended, a killed one ended first: the others end because of it.
  std::stable_sort(ended.begin(), ended.end(),
                   [](RankProcess *a, RankProcess *b) { return a->killed() > b->killed(); });
  for (RankProcess *rank : ended)
    noticeEnd(*rank);
}

void Launcher::noticeEnd(RankProcess &rank) {
  reaper_.remove(rank.pid());
  lastEndAt_ = now();
  if (rank.endedByUs())
    return;
  int code = rank.exitCode();
  const bool leaves = o_.reconfiguration && !rank.killed() && code == kLeavingRank;
  if (leaves) {
    if (leavingRanks_.empty() && !changeAsked_)
      changeAskedAt_ = now();
    leavingRanks_.push_back(rank.rank());
  }
  bool stopped = leaves || (!rank.killed() && code == kStopped);
  // SIGTERM reached the rank before its handler was installed.
  stopped = stopped ||
            (stopAsked_ && !coordinator_ && !o_.onSignal && rank.killed() && code == 128 + SIGTERM);
  someStopped_ = someStopped_ || stopped;
  bool failed = code != 0 && !stopped;
  // The other ranks end with the code of the job; it must not mean that their nodes are gone, too.
  if (!o_.startCommand.empty() && code == kConnectionLost)
    code = kLostNode;
  if (coordinator_) {
    coordinator_->processEnded(rank.rank(), failed, rank.how(), code);
    if (stopped && !failure_)
      coordinator_->requestStop();
  }
  if (failed && !failure_)
    fail({rank.rank(), code, name(rank.rank()) + " " + rank.how()});
}

/// After a failure, gives ranks time to receive the report, then sends SIGTERM, then SIGKILL, which
/// also ends stopped processes.
void Launcher::escalate() {
  if (coordinator_ && !failure_ && killedAt_ == 0)
    if (std::optional<Failure> verdict = coordinator_->failure())
      fail({verdict->rank, verdict->exitCode, firstLine(verdict->message)});
  if (!failure_ || killedAt_ != 0)
    return;
  double since = now() - failedAt_;
  if (since >= kKillSeconds) {
    killedAt_ = now();
    for (const std::unique_ptr<RankProcess> &rank : ranks_)
      rank->signalGroup(SIGKILL);
  } else if (since >= kTermSeconds && !termSent_) {
    termSent_ = true;
    for (const std::unique_ptr<RankProcess> &rank : ranks_)
      rank->signalGroup(SIGTERM);
  }
}

/// Kills ranks that have left the job but do not exit, for example because the process was stopped.
void Launcher::endLingering() {
  if (!coordinator_ || failure_ || killedAt_ != 0 || !anyRunning() ||
      !coordinator_->waitUntilOver(0))
    return;
  if (allLeftAt_ == 0)
    allLeftAt_ = now();
  if (now() - allLeftAt_ <= o_.times.heartbeatTimeoutSeconds)
    return;
  killedAt_ = now();
  lingered_ = true;
  for (const std::unique_ptr<RankProcess> &rank : ranks_)
    if (rank->running()) {
      say("warning: " + name(rank->rank()) +
          " has finished and left the job, but its process has not ended " +
          zorse::format("%.1f s", o_.times.heartbeatTimeoutSeconds) +
          " after that (is it stopped?); killing it");
      rank->signalGroup(SIGKILL);
    }
}

bool Launcher::anyRunning() const {
  return std::any_of(ranks_.begin(), ranks_.end(),
                     [](const std::unique_ptr<RankProcess> &rank) { return rank->running(); });
}

/// Whether no rank runs here, all output was read, and ranks elsewhere have left or received the
/// failure.
bool Launcher::over() const {
  if (anyRunning())
    return false;
  bool open = false;
  for (const std::unique_ptr<RankProcess> &rank : ranks_)
    open = open || rank->pipe(0) >= 0 || rank->pipe(1) >= 0;
  if (open && now() - lastEndAt_ < kDrainSeconds)
    return false;
  if (open && (out_.full() || err_.full()) && stopSignals_ < 2) // the reader is slow, and unread
                                                                // output remains
    return false;
  bool elsewhere = coordinator_ && o_.localRanks < o_.worldSize;
  if (!elsewhere || killedAt_ != 0)
    return true;
  return coordinator_->waitUntilOver(0) || (failure_ && now() - failedAt_ > kKillSeconds);
}

/// Waits at most `seconds` for events and handles them.
void Launcher::turn(double seconds) {
  std::vector<pollfd> fds = {{signals_.fd(), POLLIN, 0}};
  for (OutputQueue *queue : {&out_, &err_})
    fds.push_back({queue->empty() ? -1 : queue->fd(), POLLOUT, 0});
  std::vector<std::pair<RankProcess *, int>> readers;
  for (const std::unique_ptr<RankProcess> &rank : ranks_)
    for (int which : {0, 1})
      if (rank->pipe(which) >= 0 && !rank->queue(which).full()) {
        fds.push_back({rank->pipe(which), POLLIN, 0});
        readers.push_back({rank.get(), which});
      }
  ::poll(fds.data(), fds.size(), std::max(0, int(seconds * 1000)));
  for (size_t i = 0; i < readers.size(); ++i)
    if (fds[3 + i].revents != 0)
      readers[i].first->read(readers[i].second);
  if (fds[1].revents != 0)
    out_.write();
  if (fds[2].revents != 0)
    err_.write();
  takeSignals();
  reap();
  escalate();
  endLingering();
}

void Launcher::pause(double seconds) {
  for (double end = now() + seconds; now() < end && stopSignals_ == 0;)
    turn(end - now());
}

/// \returns the exit code; failure_ contains the reason of a failure
int Launcher::runOnce(uint64_t restarts) {
  failure_.reset();
  failedAt_ = killedAt_ = lastEndAt_ = allLeftAt_ = 0;
  lingered_ = termSent_ = someStopped_ = stopAsked_ = lost_ = changeAsked_ = false;
  ranks_.clear();
  lostRanks_.clear();
  leavingRanks_.clear();
  uint64_t generation = 0; // the coordinator's generation
  if (o_.coordinator.empty()) {
    generation = o_.nextGeneration ? o_.nextGeneration() : restarts + 1;
    CoordinatorOptions options;
    options.key = key_;
    options.worldSize = o_.worldSize;
    options.generation = generation;
    options.listenAddress = o_.listenAddress;
    options.ports = o_.ports;
    options.times = o_.times;
    options.devices = o_.deviceNames;
    Result<std::unique_ptr<Coordinator>> started = Coordinator::start(options);
    if (started.failed()) {
      int code = started.error().kind == ErrorKind::User ? 1 : 2;
      say((code == 1 ? "error: " : "internal error: ") + started.message());
      fail({kNoRank, code, started.message()});
      return code;
    }
    coordinator_ = std::move(*started);
  }
  if (Status status = startRanks(generation, restarts); status.failed()) {
    say("error: " + status.message());
    fail({kNoRank, 1, status.message()});
    for (const std::unique_ptr<RankProcess> &rank : ranks_)
      rank->signalGroup(SIGKILL);
    killedAt_ = now();
  }
  while (!over() && !lost_) {
    turn(failure_ || killedAt_ != 0 || !anyRunning() ? 0.02 : 0.1);
    if (o_.reconfiguration && coordinator_ && !failure_ && !changeAsked_ && !stopAsked_ &&
        killedAt_ == 0 && o_.reconfiguration->shouldStop()) {
      changeAsked_ = true;
      changeAskedAt_ = now();
      coordinator_->requestStop();
    }
    if (killedAt_ != 0 && now() - killedAt_ > kGiveUpSeconds)
      for (const std::unique_ptr<RankProcess> &rank : ranks_)
        if (rank->running()) {
          say("zorse-run: " + name(rank->rank()) + ", process " + std::to_string(rank->pid()) +
              ", does not end although it was killed: it waits for the kernel, for example for a "
              "file server");
          lost_ = true;
        }
  }
  for (const std::unique_ptr<RankProcess> &rank : ranks_) {
    rank->closePipes();
    const bool killed = rank->endedByUs() && (rank->running() || rank->exitCode() == 128 + SIGKILL);
    const bool nodeGone = !o_.startCommand.empty() && !rank->running() &&
                          rank->exitCode() == kConnectionLost;
    if (killed || nodeGone)
      lostRanks_.push_back(rank->rank());
  }
  failure_ = rootCause();
  coordinator_.reset();
  if (lost_)
    for (std::unique_ptr<RankProcess> &rank : ranks_)
      if (rank->running())
        rank.release(); // the process is abandoned; the destructor would wait for it
  ranks_.clear();
  if (failure_)
    return failure_->code == 0 ? 2 : failure_->code;
  return someStopped_ || (killedAt_ != 0 && !lingered_) ? kStopped : 0;
}

/// Decides by `restarts` whether the ranks start again after a failure, and waits.
bool Launcher::restartsAfterFailure(uint64_t restart, int code) {
  if (!failure_)
    return false;
  const std::string why = failure_->text;
  if (restart >= o_.restarts || !mends(code) || stopSignals_ > 0) {
    if (failure_->rank != kNoRank || code > 2)
      say("error: " + why +
          (o_.restarts > 0 && !mends(code) ? "; a restart would not help"
           : o_.restarts > 0 && restart >= o_.restarts
               ? "; no restarts left of " + std::to_string(o_.restarts)
               : ""));
    return false;
  }
  const std::string from = o_.startsFrom ? o_.startsFrom() : "";
  say("restart " + std::to_string(restart + 1) + " of " + std::to_string(o_.restarts) +
      (from.empty() ? "" : " from " + from) + ": " + why);
  double wait = std::min(5.0, 0.2 * double(uint64_t(1) << std::min<uint64_t>(restart, 5)));
  // The coordinator's node may still be ending ranks, and the failed job rejects ranks that
  // connect before it starts again.
  if (!o_.coordinator.empty())
    wait = std::max(wait, kKillSeconds + 0.5);
  pause(wait);
  return stopSignals_ == 0;
}

/// Lets the reconfiguration decide whether and with which devices the ranks start again.
bool Launcher::startsAgain(uint64_t start, int code) {
  const bool changes = changeAsked_ || !leavingRanks_.empty();
  if (stopSignals_ > 0 || (!failure_ && (code != kStopped || !changes)))
    return false;
  if (failure_ && !mends(code)) {
    say("error: " + failure_->text + "; other devices would not help");
    return false;
  }
  LaunchOutcome outcome;
  outcome.start = start;
  outcome.failed = failure_.has_value();
  outcome.seconds = now() - (failure_ ? failedAt_ : changeAskedAt_);
  if (failure_) {
    outcome.rank = failure_->rank;
    outcome.lost = lostRanks_;
    outcome.why = failure_->text;
  } else if (!leavingRanks_.empty()) {
    outcome.leaving = leavingRanks_;
    outcome.why = name(leavingRanks_.front()) + " was asked to end";
  }
  constexpr double kPollSeconds = 0.01;
  while (stopSignals_ == 0) {
    const Reconfiguration::Next next = o_.reconfiguration->next(outcome, o_);
    if (!next.message.empty())
      say(next.message);
    if (next.action != Reconfiguration::Next::Action::Wait)
      return next.action == Reconfiguration::Next::Action::Start;
    pause(kPollSeconds);
  }
  return false;
}

int Launcher::run() {
  int code = 0;
  for (uint64_t start = 0;; ++start) {
    code = runOnce(start);
    if (o_.reconfiguration ? !startsAgain(start, code) : !restartsAfterFailure(start, code))
      break;
  }
  while ((!out_.empty() || !err_.empty()) && stopSignals_ < 2)
    turn(1);
  for (int i = 0; i < 64 && (!out_.empty() || !err_.empty()); ++i)
    turn(0); // ended immediately: writes what does not block
  return code;
}

int startError(int fd, const std::string &message) {
  std::string line = "error: " + message + "\n";
  [[maybe_unused]] ssize_t written = ::write(fd, line.data(), line.size());
  return 1;
}

} // namespace

JobKey zorse::runtime::randomJobKey() {
  uint8_t bytes[40] = {};
  for (size_t done = 0; done < sizeof bytes;) {
    ssize_t got = ::getrandom(bytes + done, sizeof bytes - done, 0);
    if (got <= 0)
      return {};
    done += size_t(got);
  }
  JobKey key;
  key.job = "local/";
  for (size_t i = 0; i < sizeof bytes; ++i) {
    char hex[3];
    snprintf(hex, sizeof hex, "%02x", bytes[i]);
    (i < 8 ? key.job : key.secret) += hex;
  }
  return key;
}

int zorse::runtime::launch(const LaunchOptions &options) {
  if (options.command.empty() || options.localRanks == 0 ||
      options.worldSize < options.localRanks ||
      options.firstRank > options.worldSize - options.localRanks)
    return startError(options.err, "launch expects a command and ranks from " +
                                       std::to_string(options.firstRank) +
                                       " on, at least one, within the " +
                                       std::to_string(options.worldSize) + " of the job, got " +
                                       std::to_string(options.localRanks));
  JobKey key = options.key;
  if (key.secret.empty() && options.localRanks == options.worldSize)
    key = randomJobKey();
  if (key.secret.empty())
    return startError(options.err, "this job has no secret: expects ZORSE_SECRET, "
                                   "ZORSE_SECRET_FILE or a random source of the system");
  std::string program = options.program.empty() ? findProgram(options.command[0]) : options.program;
  if (program.empty())
    return startError(options.err, options.command[0] + ": not found in PATH");
  Result<std::unique_ptr<OrphanReaper>> reaper = OrphanReaper::start();
  if (reaper.failed())
    return startError(options.err, reaper.message());
  Signals signals;
  return Launcher(options, std::move(key), std::move(program), signals, **reaper).run();
}
