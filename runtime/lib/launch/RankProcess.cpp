#include "RankProcess.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace zorse::runtime;
using namespace zorse::runtime::launching;

namespace {

struct Pipe {
  int ends[2] = {-1, -1};
  ~Pipe() {
    for (int end : ends)
      if (end >= 0)
        ::close(end);
  }
  bool open() { return ::pipe2(ends, O_CLOEXEC) == 0; }
  int release(int which) {
    int end = ends[which];
    ends[which] = -1;
    return end;
  }
  void close(int which) {
    ::close(ends[which]);
    ends[which] = -1;
  }
};

/// Runs in the forked process. Only system calls are allowed, because other threads of the launcher
/// may have held locks.
[[noreturn]] void become(const char *program, char *const *arguments, char *const *environment,
                         const sigset_t &mask, pid_t launcher, int nothing, int out, int err,
                         int failure) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != launcher) // the launcher died before prctl
    ::_exit(127);
  for (int signal = 1; signal < NSIG; ++signal)
    if (signal != SIGKILL && signal != SIGSTOP)
      ::signal(signal, SIG_DFL);
  ::dup2(nothing, 0);
  ::dup2(out, 1);
  ::dup2(err, 2);
  ::close_range(3, ~0u, CLOSE_RANGE_CLOEXEC);
  ::sigprocmask(SIG_SETMASK, &mask, nullptr);
  ::execve(program, arguments, environment);
  int why = errno;
  [[maybe_unused]] ssize_t written = ::write(failure, &why, sizeof why);
  ::_exit(127);
}

std::vector<char *> pointers(const std::vector<std::string> &texts) {
  std::vector<char *> all;
  for (const std::string &text : texts)
    all.push_back(const_cast<char *>(text.c_str()));
  all.push_back(nullptr);
  return all;
}

} // namespace

Result<std::unique_ptr<RankProcess>> RankProcess::start(const Options &options, OutputQueue &out,
                                                        OutputQueue &err) {
  auto failed = [&](const char *what, int why) {
    return userError("cannot start rank " + std::to_string(options.rank) + ": " + what + ": " +
                     std::strerror(why) +
                     (why == EAGAIN || why == EMFILE || why == ENFILE || why == ENOMEM
                          ? " (see ulimit -u and ulimit -n)"
                          : ""));
  };
  Pipe outPipe, errPipe, failure;
  if (!outPipe.open() || !errPipe.open() || !failure.open())
    return failed("pipe", errno);
  int nothing = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (nothing < 0)
    return failed("/dev/null", errno);
  std::vector<char *> arguments = pointers(options.arguments),
                      environment = pointers(options.environment);
  pid_t launcher = ::getpid();
  pid_t pid = ::fork();
  if (pid == 0)
    become(options.program.c_str(), arguments.data(), environment.data(), options.signalMask,
           launcher, nothing, outPipe.ends[1], errPipe.ends[1], failure.ends[1]);
  int forkFailure = errno;
  ::close(nothing);
  if (pid < 0)
    return failed("fork", forkFailure);
  ::setpgid(pid, pid); // called in parent and child: either may run first
  failure.close(1);
  int why = 0;
  ssize_t got;
  while ((got = ::read(failure.ends[0], &why, sizeof why)) < 0 && errno == EINTR)
    ;
  if (got == ssize_t(sizeof why)) {
    ::waitpid(pid, nullptr, 0);
    return failed(options.program.c_str(), why);
  }
  for (Pipe *pipe : {&outPipe, &errPipe})
    ::fcntl(pipe->ends[0], F_SETFL, O_NONBLOCK);
  return std::unique_ptr<RankProcess>(new RankProcess(options.rank, pid, outPipe.release(0),
                                                      errPipe.release(0), options, out, err));
}

RankProcess::RankProcess(uint32_t rank, pid_t pid, int out, int err, const Options &options,
                         OutputQueue &outQueue, OutputQueue &errQueue)
    : rank_(rank), pid_(pid), pipes_{out, err}, queues_{&outQueue, &errQueue},
      lines_{{options.outPrefix, outQueue}, {options.errPrefix, errQueue}} {}

RankProcess::~RankProcess() {
  if (running_) {
    ::kill(-pid_, SIGKILL);
    while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR)
      ;
  }
  closePipes();
}

bool RankProcess::reap() {
  if (!running_)
    return false;
  siginfo_t info;
  std::memset(&info, 0, sizeof info);
  if (::waitid(P_PID, id_t(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0)
    return false;
  // While the process is a zombie, its group number cannot be reused.
  ::kill(-pid_, SIGKILL);
  ::waitpid(pid_, &status_, 0);
  running_ = false;
  return true;
}

bool RankProcess::killed() const { return WIFSIGNALED(status_); }

int RankProcess::exitCode() const {
  return WIFSIGNALED(status_) ? 128 + WTERMSIG(status_) : WEXITSTATUS(status_);
}

std::string RankProcess::how() const {
  if (WIFSIGNALED(status_))
    return "was killed by signal " + std::to_string(WTERMSIG(status_)) + " (" +
           ::strsignal(WTERMSIG(status_)) + ")";
  return "ended with exit code " + std::to_string(WEXITSTATUS(status_));
}

void RankProcess::signalGroup(int signal) {
  if (!running_)
    return;
  signalled_ = true;
  ::kill(-pid_, signal);
}

void RankProcess::signalProcess(int signal) {
  if (running_)
    ::kill(pid_, signal);
}

void RankProcess::read(int which) {
  char bytes[1 << 16];
  ssize_t got = ::read(pipes_[which], bytes, sizeof bytes);
  if (got > 0) {
    lines_[which].take(bytes, size_t(got));
  } else if (got == 0 || (errno != EINTR && errno != EAGAIN)) {
    lines_[which].flush();
    ::close(pipes_[which]);
    pipes_[which] = -1;
  }
}

void RankProcess::closePipes() {
  for (int which : {0, 1})
    if (pipes_[which] >= 0) {
      lines_[which].flush();
      ::close(pipes_[which]);
      pipes_[which] = -1;
    }
}
