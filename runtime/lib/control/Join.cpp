#include "Join.h"
#include "Proof.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <random>

#include <poll.h>
#include <unistd.h>

using namespace zorse::control;
using namespace zorse::runtime;

namespace {

/// Seconds after which the rank gives up if every endpoint belongs to another program or job.
constexpr double kSettledSeconds = 3;
constexpr double kLongestPause = 0.25;
constexpr double kShortestTry = 0.02;

/// Result of one failed attempt at one endpoint.
struct Outcome {
  /// Nothing listens there; try again soon; belongs to another program or job; this job refuses the
  /// rank.
  enum Kind { Absent, Later, Settled, Final } kind = Absent;
  std::string text;
  int exitCode = 0; ///< exit code of a job that has failed
};

/// Combines the outcomes of two addresses of one endpoint. A program that answered counts more than
/// an absent one; the texts are joined.
Outcome together(const Outcome &a, const Outcome &b) {
  if (a.text.empty())
    return b;
  bool same = a.text == b.text;
  return {a.kind == Outcome::Absent || b.kind == Outcome::Absent ? std::max(a.kind, b.kind)
                                                                 : std::min(a.kind, b.kind),
          same ? a.text : a.text + ", " + b.text, 0};
}

std::string secondsText(double value) {
  std::string text = std::to_string(value);
  return text.substr(0, text.find('.') + 2) + " s";
}

class Attempt {
public:
  Attempt(const MemberOptions &options, const Address &address, double until)
      : options_(options), address_(address), until_(until) {}

  /// Returns true if admitted.
  bool run(double patience, JoinResult *out, Outcome *outcome) {
    double now = monotonicSeconds();
    Result<FileDescriptor> socket = connectTo(address_, std::min(until_, now + patience));
    if (socket.failed())
      return end(outcome, Outcome::Absent, socket.message());
    connection_ = std::make_unique<Connection>(std::move(*socket));
    if (!greet(monotonicSeconds() + patience, outcome) ||
        !prove(monotonicSeconds() + patience, outcome) || !join(outcome))
      return false;
    out->connection = std::move(connection_);
    out->welcome = welcome_;
    return true;
  }

private:
  static bool end(Outcome *outcome, Outcome::Kind kind, std::string text) {
    *outcome = {kind, std::move(text), 0};
    return false;
  }

  void send(const Message &message) { connection_->queue(encode(message)); }

  bool greet(double until, Outcome *outcome) {
    nonces_.member = randomBytes();
    Message mine;
    mine.mutable_hello()->set_magic(kMagic);
    mine.mutable_hello()->set_version(kVersion);
    mine.mutable_hello()->set_role(MEMBER);
    mine.mutable_hello()->set_nonce(nonces_.member);
    send(mine);
    Message theirs;
    std::string why;
    switch (await(HandshakeState::Greeting, std::min(until, until_), &theirs, &why)) {
    case Came:
      break;
    case Late:
      return end(outcome, Outcome::Later,
                 "connected, but nothing greets there: another program, or a coordinator that is "
                 "overloaded");
    case Closed:
      return end(outcome, Outcome::Later, "connected, but " + why);
    case Strange:
      return end(outcome, Outcome::Settled, "another program: it does not speak this protocol");
    }
    if (theirs.hello().version() != kVersion)
      return end(outcome, Outcome::Settled,
                 "speaks version " + std::to_string(theirs.hello().version()) +
                     " of the protocol, expected " + std::to_string(kVersion) +
                     ": use one version of Zorse for all ranks");
    nonces_.coordinator = theirs.hello().nonce();
    return true;
  }

  bool prove(double until, Outcome *outcome) {
    Message mine, theirs;
    mine.mutable_authenticate()->set_mac(macOfSecret(options_.key.secret, MEMBER, nonces_));
    send(mine);
    std::string why;
    const char *stranger = "a coordinator of Zorse that does not know this job's secret: expected "
                           "the coordinator of job '%', found another one or another secret";
    std::string text = stranger;
    text.replace(text.find('%'), 1, options_.key.job);
    switch (await(HandshakeState::Proof, std::min(until, until_), &theirs, &why)) {
    case Came:
      break;
    case Late:
      return end(outcome, Outcome::Later,
                 "sends its greeting, but no proof that it knows the secret");
    case Closed:
      return end(outcome, Outcome::Later, "greets, but then: " + why);
    case Strange:
      return end(outcome, Outcome::Settled, "another program: it does not speak this protocol");
    }
    if (theirs.what_case() == Message::kJoinRejected ||
        !equalMacs(theirs.authenticate().mac(),
                   macOfSecret(options_.key.secret, COORDINATOR, nonces_)))
      return end(outcome, Outcome::Settled, text);
    connection_->reader().setLimit(kFrameBytes);
    return true;
  }

  bool join(Outcome *outcome) {
    Message mine, theirs;
    Join &join = *mine.mutable_join();
    join.set_job(options_.key.job);
    join.set_generation(options_.generation);
    join.set_rank(options_.rank);
    join.set_world_size(options_.worldSize);
    join.set_device(options_.device);
    join.set_mac(macOfJoin(options_.key.secret, nonces_, join));
    send(mine);
    std::string why;
    // A coordinator that knows the secret may count this rank as joined from now on. A long wait is
    // therefore no reason to try again.
    switch (await(HandshakeState::Join, until_, &theirs, &why)) {
    case Came:
      break;
    case Late:
      return end(outcome, Outcome::Later, "knows the secret, but does not answer");
    case Closed:
      return end(outcome, Outcome::Later, "knows the secret, but then: " + why);
    case Strange:
      return end(outcome, Outcome::Settled,
                 "knows the secret, but sends a message that this version does not understand: use "
                 "one version of Zorse for all ranks");
    }
    if (theirs.what_case() == Message::kJoinRejected)
      return refused(theirs.join_rejected(), outcome);
    welcome_ = theirs.join_accepted();
    bool same = welcome_.job() == options_.key.job && welcome_.rank() == options_.rank &&
                welcome_.world_size() == options_.worldSize &&
                (options_.generation == 0 || options_.generation == welcome_.generation());
    if (!same || !equalMacs(welcome_.mac(), macOfWelcome(options_.key.secret, nonces_, welcome_)))
      return end(outcome, Outcome::Settled,
                 "knows the secret, but its welcome is not for this rank: the messages are changed "
                 "on the way");
    return true;
  }

  bool refused(const JoinRejected &refusal, Outcome *outcome) const {
    std::string me = "rank " + std::to_string(options_.rank);
    switch (refusal.reason()) {
    case OTHER_JOB:
      return end(outcome, Outcome::Settled,
                 "the coordinator of another job: expected '" + options_.key.job + "', found '" +
                     refusal.job() + "'");
    case OTHER_GENERATION: {
      std::string text = "expected generation " + std::to_string(options_.generation) + ", found " +
                         std::to_string(refusal.generation());
      if (refusal.generation() > options_.generation)
        return end(outcome, Outcome::Final,
                   "the job has been restarted: " + text +
                       ". This rank is a leftover of an earlier start and must end");
      return end(outcome, Outcome::Later,
                 "the coordinator of an earlier start of this job, which should have ended: " +
                     text);
    }
    case OTHER_WORLD_SIZE:
      return end(outcome, Outcome::Final,
                 "the job has " + std::to_string(refusal.world_size()) + " ranks, this is " + me +
                     " of " + std::to_string(options_.worldSize) +
                     ": start every rank with the same number of ranks, numbered from 0");
    case DUPLICATE_RANK:
      return end(outcome, Outcome::Final,
                 (refusal.message().empty() ? me : refusal.message()) +
                     " has joined already: two processes were started as " + me +
                     ", or an earlier one still runs");
    case JOB_FAILED:
      *outcome = {Outcome::Final, "the job has failed already: " + refusal.message(),
                  refusal.exit_code()};
      return false;
    default:
      return end(outcome, Outcome::Settled, "does not accept this job's secret any more");
    }
  }

  enum Wait { Came, Late, Closed, Strange };

  /// Sends what is queued and waits for the next message.
  Wait await(HandshakeState state, double until, Message *out, std::string *why) {
    while (true) {
      connection_->flush();
      if (std::optional<std::string_view> frame = connection_->reader().next()) {
        Result<Message> message = parseMessage(*frame, COORDINATOR, state, options_.worldSize);
        if (message.failed())
          return Strange;
        *out = std::move(*message);
        return Came;
      }
      if (connection_->reader().broken())
        return Strange;
      if (!open_) {
        *why = connection_->why();
        return Closed;
      }
      double left = until - monotonicSeconds();
      if (left <= 0)
        return Late;
      pollfd wait = {connection_->fd(), short(POLLIN | (connection_->pending() ? POLLOUT : 0)), 0};
      if (::poll(&wait, 1, int(std::min(left, 1e6) * 1000) + 1) < 0 && errno != EINTR) {
        *why = "polling failed";
        return Closed;
      }
      if (wait.revents & (POLLIN | POLLHUP | POLLERR))
        open_ = connection_->receive(kGreetingBytes);
    }
  }

  const MemberOptions &options_;
  const Address &address_;
  const double until_;
  std::unique_ptr<Connection> connection_;
  Nonces nonces_;
  JoinAccepted welcome_;
  bool open_ = true;
};

/// Returns true if admitted.
bool tryEndpoint(const MemberOptions &options, const Endpoint &endpoint, double until,
                 double patience, JoinResult *result, Outcome *outcome) {
  Result<std::vector<Address>> addresses = resolve(endpoint);
  if (addresses.failed()) {
    *outcome = {Outcome::Absent, addresses.message(), 0};
    return false;
  }
  for (const Address &address : *addresses) {
    Outcome here;
    if (Attempt(options, address, until).run(patience, result, &here)) {
      result->endpoint = endpoint;
      return true;
    }
    if (here.kind == Outcome::Final) {
      *outcome = here;
      return false;
    }
    *outcome = together(*outcome, here);
    if (monotonicSeconds() >= until)
      break;
  }
  return false;
}

} // namespace

Result<JoinResult> zorse::control::joinJob(const MemberOptions &options) {
  const double start = monotonicSeconds(), until = start + std::max(options.times.joinSeconds, 0.0);
  std::vector<Outcome> last(options.endpoints.size());
  std::minstd_rand random(uint32_t(::getpid()) * 31 + options.rank);
  double patience = 1, pause = 0.01, settledSince = -1;
  std::string who = "rank " + std::to_string(options.rank) +
                    (options.device.empty() ? "" : " (device " + options.device + ")");
  while (true) {
    bool settled = true;
    for (size_t i = 0; i < options.endpoints.size(); ++i) {
      JoinResult result;
      Outcome outcome;
      if (tryEndpoint(options, options.endpoints[i], until, patience, &result, &outcome))
        return result;
      if (outcome.kind == Outcome::Final || last[i].text.empty() ||
          monotonicSeconds() < until) // an attempt that was cut short reports less than the one
                                      // before
        last[i] = outcome;
      if (last[i].kind == Outcome::Final) {
        Error refused = userError(who + " was refused by the coordinator of job '" +
                                  options.key.job + "' at " + describe(options.endpoints[i]) +
                                  ": " + last[i].text);
        refused.exitCode = last[i].exitCode;
        return refused;
      }
      settled &= last[i].kind == Outcome::Settled;
      if (monotonicSeconds() >= until)
        break;
    }
    double now = monotonicSeconds();
    settledSince = !settled ? -1 : settledSince < 0 ? now : settledSince;
    if (now + kShortestTry >= until || (settled && now - settledSince >= kSettledSeconds))
      break;
    // Ranks that were started together must not connect together.
    double share = std::uniform_real_distribution<double>(0.5, 1)(random);
    ::usleep(useconds_t(std::min(pause * share, until - kShortestTry - now) * 1e6));
    pause = std::min(pause * 1.5, kLongestPause);
    patience = std::min(patience * 1.5, 5.0); // a coordinator may be slow while many ranks join
  }
  std::string tried;
  for (size_t i = 0; i < options.endpoints.size(); ++i)
    tried += (i == 0 ? "" : "; ") + describe(options.endpoints[i]) + ": " +
             (last[i].text.empty() ? "not tried again" : last[i].text);
  return userError(who + " found no coordinator of job '" + options.key.job + "' within " +
                   secondsText(monotonicSeconds() - start) + ". Tried: " +
                   (tried.empty() ? "nothing, because no endpoint was given" : tried) +
                   ". Start all ranks of the job at about the same time, with the same secret "
                   "(ZORSE_SECRET, or the file that ZORSE_SECRET_FILE "
                   "names) and the same job name");
}
