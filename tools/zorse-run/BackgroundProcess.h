// A child process during training, whose output goes to a file.
#pragma once

#include "zorse/runtime/Status.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

namespace zorse::run {

class BackgroundProcess {
public:
  /// Starts a program in its own process group, with the lowest priority if it is not urgent.
  /// \param arguments  argv; the first one is the path of the program
  /// \param output     file for both of its outputs; it is replaced
  static runtime::Result<std::unique_ptr<BackgroundProcess>>
  start(const std::vector<std::string> &arguments, const std::string &output, bool urgent);
  /// Kills the process if it still runs, and all processes of its group.
  ~BackgroundProcess();
  BackgroundProcess(const BackgroundProcess &) = delete;
  BackgroundProcess &operator=(const BackgroundProcess &) = delete;

  /// Returns the exit code once the process has ended, 128 + n for signal n. Does not wait.
  std::optional<int> poll();

private:
  explicit BackgroundProcess(pid_t pid) : pid(pid) {}

  pid_t pid;
  std::optional<int> code;
};

/// Returns the last lines of a file, for messages. Empty if it cannot be read.
std::string lastLines(const std::string &path, size_t lines);

} // namespace zorse::run
