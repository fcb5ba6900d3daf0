// One rank as a child process of the launcher.
#pragma once

#include "LogLines.h"

#include "zorse/runtime/Status.h"

#include <csignal>
#include <memory>
#include <vector>

#include <sys/types.h>

namespace zorse::runtime::launching {

class RankProcess {
public:
  struct Options {
    uint32_t rank = 0;
    std::string program;                  ///< path
    std::vector<std::string> arguments;   ///< argv
    std::vector<std::string> environment; ///< "NAME=value"
    sigset_t signalMask;                  ///< signal mask of the new process
    std::string outPrefix, errPrefix;
  };

  /// Starts the process in a separate process group, with empty standard input and pipes for its
  /// output. It is killed when the calling thread ends.
  static Result<std::unique_ptr<RankProcess>> start(const Options &options, OutputQueue &out,
                                                    OutputQueue &err);
  ~RankProcess();

  uint32_t rank() const { return rank_; }
  pid_t pid() const { return pid_; }
  bool running() const { return running_; }

  /// Returns true once, when the process has ended. It is then waited for, and the processes that
  /// it started in its group are killed.
  bool reap();
  bool killed() const;     ///< ended by a signal
  int exitCode() const;    ///< 128 + n for signal n
  std::string how() const; ///< "was killed by signal 9 (Killed)", "ended with exit code 3"

  /// Sends a signal to the process and all processes of its group.
  void signalGroup(int signal);
  void signalProcess(int signal);
  bool endedByUs() const { return signalled_; }

  /// The read ends of the two output pipes; -1 when closed.
  int pipe(int which) const { return pipes_[which]; }
  const OutputQueue &queue(int which) const { return *queues_[which]; }
  /// Reads the available output. Closes the pipe at its end.
  void read(int which);
  /// Closes the pipes without waiting for more output, and passes on the output received.
  void closePipes();

private:
  RankProcess(uint32_t rank, pid_t pid, int out, int err, const Options &options,
              OutputQueue &outQueue, OutputQueue &errQueue);

  uint32_t rank_;
  pid_t pid_;
  bool running_ = true, signalled_ = false;
  int status_ = 0;
  int pipes_[2];
  OutputQueue *queues_[2];
  LineSplitter lines_[2];
};

} // namespace zorse::runtime::launching
