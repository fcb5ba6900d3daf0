#include "Assembler.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <vector>

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

namespace fs = std::filesystem;

namespace zorse::inspect {

namespace {

bool runs(const fs::path &path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored) && ::access(path.c_str(), X_OK) == 0;
}

/// Runs a program and collects its standard output and standard error. Returns the exit code, or
/// -1.
int run(const std::vector<std::string> &words, std::string &output) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0)
    return -1;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
  std::vector<char *> arguments;
  arguments.reserve(words.size() + 1);
  for (const std::string &word : words)
    arguments.push_back(const_cast<char *>(word.c_str()));
  arguments.push_back(nullptr);
  pid_t pid = -1;
  const int failure =
      posix_spawn(&pid, words[0].c_str(), &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  char buffer[1 << 14];
  for (ssize_t got; failure == 0 && ((got = ::read(ends[0], buffer, sizeof buffer)) > 0 ||
                                     (got < 0 && errno == EINTR));)
    output.append(buffer, size_t(std::max<ssize_t>(got, 0)));
  ::close(ends[0]);
  if (failure != 0) {
    output = std::strerror(failure);
    return -1;
  }
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR)
    ;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/// Returns the number before `unit`, or 0 if the line has none.
int numberBefore(const std::string &line, const std::string &unit) {
  size_t at = line.find(unit);
  if (at == std::string::npos)
    return 0;
  while (at > 0 && line[at - 1] == ' ')
    --at;
  size_t begin = at;
  while (begin > 0 && std::isdigit(static_cast<unsigned char>(line[begin - 1])))
    --begin;
  return std::atoi(line.substr(begin, at - begin).c_str());
}

} // namespace

Result<std::string> findAssembler(const std::string &given) {
  const char *named = std::getenv("PTXAS");
  for (const auto &[path, what] :
       {std::pair<std::string, const char *>(given, "--ptxas"), {named ? named : "", "$PTXAS"}}) {
    if (path.empty())
      continue;
    if (runs(path))
      return fs::absolute(path).string();
    return userError(std::string(what) + ": expected NVIDIA's assembler, got '" + path +
                     "', which is not a program; tools/ptxas.sh downloads one and prints its path");
  }
  // The program is build/<preset>/bin/zorse-inspect; search the parent folders.
  std::error_code ignored;
  for (fs::path directory = fs::read_symlink("/proc/self/exe", ignored).parent_path();
       directory.has_relative_path(); directory = directory.parent_path())
    if (fs::path path = directory / ".cache/ptxas/nvidia/cuda_nvcc/bin/ptxas"; runs(path))
      return path.string();
  if (const char *directories = std::getenv("PATH")) {
    std::istringstream list(directories);
    for (std::string directory; std::getline(list, directory, ':');)
      if (fs::path path = fs::path(directory) / "ptxas"; !directory.empty() && runs(path))
        return fs::absolute(path).string();
  }
  return std::string();
}

Result<std::map<std::string, AssembledKernel>>
assemble(const std::string &assembler, const std::string &arch, const std::string &file) {
  std::string output;
  const int code =
      run({assembler, "-arch=" + arch, "-v", fs::absolute(file), "-o", "/dev/null"}, output);
  if (code != 0) {
    const std::string said = output.substr(0, output.find('\n'));
    return userError(said.empty() ? "it ended with " + std::to_string(code) : said);
  }
  std::map<std::string, AssembledKernel> kernels;
  AssembledKernel *current = nullptr;
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);) {
    constexpr const char *entry = "Compiling entry function '";
    if (const size_t at = line.find(entry); at != std::string::npos) {
      const size_t begin = at + std::strlen(entry);
      current = &kernels[line.substr(begin, line.find('\'', begin) - begin)];
    }
    if (!current)
      continue;
    if (line.find("bytes spill stores") != std::string::npos)
      current->spilledBytes = std::max(numberBefore(line, "bytes spill stores"),
                                       numberBefore(line, "bytes spill loads"));
    if (line.find(" registers") != std::string::npos) {
      current->registers = numberBefore(line, "registers");
      current->sharedBytes = numberBefore(line, "bytes smem");
    }
  }
  return kernels;
}

} // namespace zorse::inspect
