#include "BackgroundProcess.h"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <deque>
#include <fstream>

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace zorse::run;
using namespace zorse::runtime;

namespace {

constexpr int kLowestPriority = 19;

/// The child after fork. Other threads of the parent may have held locks: it only calls functions
/// that are safe in signal handlers.
[[noreturn]] void become(char **arguments, int output, bool urgent) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  if (!urgent)
    ::setpriority(PRIO_PROCESS, 0, kLowestPriority);
  const int input = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  ::dup2(input, 0);
  ::dup2(output, 1);
  ::dup2(output, 2);
  ::execv(arguments[0], arguments);
  ::_exit(127);
}

} // namespace

Result<std::unique_ptr<BackgroundProcess>>
BackgroundProcess::start(const std::vector<std::string> &arguments, const std::string &output,
                         bool urgent) {
  const int file = ::open(output.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (file < 0)
    return userError(output + ": cannot be written: " + std::strerror(errno));
  std::vector<char *> words;
  words.reserve(arguments.size() + 1);
  for (const std::string &argument : arguments)
    words.push_back(const_cast<char *>(argument.c_str()));
  words.push_back(nullptr);
  const pid_t pid = ::fork();
  if (pid == 0)
    become(words.data(), file, urgent);
  const int cause = errno;
  ::close(file);
  if (pid < 0)
    return userError(arguments[0] + ": cannot be started: " + std::strerror(cause));
  return std::unique_ptr<BackgroundProcess>(new BackgroundProcess(pid));
}

BackgroundProcess::~BackgroundProcess() {
  if (poll())
    return;
  ::kill(-pid, SIGKILL);
  ::kill(pid, SIGKILL); // it may not have its own group yet
  ::waitpid(pid, nullptr, 0);
}

std::optional<int> BackgroundProcess::poll() {
  int status = 0;
  if (code || ::waitpid(pid, &status, WNOHANG) != pid)
    return code;
  code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return code;
}

std::string zorse::run::lastLines(const std::string &path, size_t lines) {
  std::ifstream file(path);
  std::deque<std::string> last;
  for (std::string line; std::getline(file, line);) {
    last.push_back(std::move(line));
    if (last.size() > lines)
      last.pop_front();
  }
  std::string text;
  for (const std::string &line : last) {
    text += text.empty() ? "" : "\n";
    text += line;
  }
  return text;
}
