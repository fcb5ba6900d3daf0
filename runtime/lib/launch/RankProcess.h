// One rank as a child process.
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
    std::string program;                  ///< a path
    std::vector<std::string> arguments;   ///< argv
    std::vector<std::string> environment; ///< "NAME=value"
    sigset_t signalMask;                  ///< of the new process
    std::string outPrefix, errPrefix;
  };

  /// Starts the process in a group of its own, with nothing to read and pipes for its output. It is killed when the calling thread ends.
  static Result<std::unique_ptr<RankProcess>> start(const Options &options, OutputQueue &out, OutputQueue &err);
  ~RankProcess();

  uint32_t rank() const { return rank_; }
  pid_t pid() const { return pid_; }
  bool running() const { return running_; }

  /// True once, when the process has ended: it is waited for, and what it started in its group is killed.
  bool reap();
  bool killed() const;     ///< by a signal
  int exitCode() const;    ///< 128 + n for signal n
  std::string how() const; ///< "was killed by signal 9 (Killed)", "ended with exit code 3"

  /// To the process and all it started.
  void signalGroup(int signal);
  void signalProcess(int signal);
  bool endedByUs() const { return signalled_; }

  /// The two ends to read from; -1 when closed.
  int pipe(int which) const { return pipes_[which]; }
  const OutputQueue &queue(int which) const { return *queues_[which]; }
  /// Reads what is there. Closes the pipe at its end.
  void read(int which);
  /// Gives up on what else may come, and passes on what came.
  void closePipes();

private:
  RankProcess(uint32_t rank, pid_t pid, int out, int err, const Options &options, OutputQueue &outQueue, OutputQueue &errQueue);

  uint32_t rank_;
  pid_t pid_;
  bool running_ = true, signalled_ = false;
  int status_ = 0;
  int pipes_[2];
  OutputQueue *queues_[2];
  LineSplitter lines_[2];
};

} // namespace zorse::runtime::launching
