// Speed of copying and writing a device's state, compared with memcpy and with plain writes of the
// same size.
#include "../runtime/StateOnly.h"

#include "checkpoint/DeviceState.h"
#include "zorse/runtime/Checkpoint.h"

#include <chrono>
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

using namespace zorse;
using namespace zorse::runtime;
using namespace zorse::runtime::test;

namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// CPU seconds of all threads of this process.
double processorTime() {
  rusage use;
  ::getrusage(RUSAGE_SELF, &use);
  return double(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
         1e-6 * double(use.ru_utime.tv_usec + use.ru_stime.tv_usec);
}

struct Times {
  double seconds = 1e30, processor = 1e30;
};

template <typename Work> Times best(int times, const Work &work) {
  Times min;
  for (int i = 0; i < times; ++i) {
    double begin = now(), used = processorTime();
    work();
    min.seconds = std::min(min.seconds, now() - begin);
    min.processor = std::min(min.processor, processorTime() - used);
  }
  return min;
}

} // namespace

/// \param argv  megabytes of state (default 1024), directory (default: a temporary one)
int main(int argc, char **argv) {
  double megabytes = argc > 1 ? std::atof(argv[1]) : 1024;
  TemporaryDirectory folder;
  std::string directory = argc > 2 ? argv[2] : folder.path("snapshots");
  StateOnlyOptions options;
  options.devices = 1;
  options.frozen = {};
  options.scale = int64_t(megabytes * 1e6 / (3 * 4 * 6)); // parameters and two moments; p0 to p2
                                                          // have 1 + 2 + 3 times `scale` elements
  Bundle bundle = stateOnly(folder, options);
  std::unique_ptr<Executor> executor = stateExecutor(bundle);
  if (!executor)
    return 1;
  auto state = DeviceState::create(*executor, layoutOf(bundle, 0));
  if (state.failed())
    return 1;
  double bytes = double(state->layout().stateBytes);
  std::vector<std::byte> target(size_t(bytes), std::byte(1)), source(size_t(bytes), std::byte(2));
  for (const bundle::PersistentState &held : bundle.programs[0].state())
    if (executor
            ->write(0, held.region(), 0, source.data(),
                    std::min(source.size(), size_t(held.region().bytes())))
            .failed())
      return 1;
  Times memcpyTimes = best(5, [&] { std::memcpy(target.data(), source.data(), size_t(bytes)); });
  Times copyTimes = best(5, [&] { (void)state->copy(); });
  std::string plain = folder.path("plain");
  std::filesystem::create_directories(directory);
  if (argc > 2)
    plain = directory + "/plain";
  Times writeTimes = best(3, [&] {
    int file = ::open(plain.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
    for (size_t at = 0; at < target.size(); at += 16 << 20)
      if (::write(file, target.data() + at, std::min<size_t>(16 << 20, target.size() - at)) < 0)
        std::perror("write");
    ::fsync(file);
    ::close(file);
  });
  ::unlink(plain.c_str());

  auto group = makeSingleProcessGroup(1);
  CheckpointOptions checkpointOptions;
  checkpointOptions.directory = directory;
  checkpointOptions.keep = 1;
  auto checkpoints = CheckpointManager::open(*executor, bundle, *group, checkpointOptions, {});
  if (checkpoints.failed()) {
    std::fprintf(stderr, "%s\n", checkpoints.message().c_str());
    return 1;
  }
  uint64_t step = 0;
  Times checkpointTimes = best(3, [&] {
    (*checkpoints)->saveNow(++step);
    if (Status status = (*checkpoints)->finish(); status.failed())
      std::fprintf(stderr, "%s\n", status.message().c_str());
  });
  Times readTimes = best(2, [&] {
    if (auto point = (*checkpoints)->resume(true, nullptr); point.failed() || !*point)
      std::fprintf(stderr, "cannot resume\n");
  });
  std::printf("state %.0f MB; seconds, GB/s, seconds of processor time\n", bytes / 1e6);
  for (const auto &[name, times] :
       std::initializer_list<std::pair<const char *, Times>>{{"memcpy", memcpyTimes},
                                                             {"copy", copyTimes},
                                                             {"write, fsync", writeTimes},
                                                             {"snapshot", checkpointTimes},
                                                             {"resume", readTimes}})
    std::printf("%-14s %7.3f %6.2f %7.3f\n", name, times.seconds, bytes / times.seconds / 1e9,
                times.processor);
  return 0;
}
