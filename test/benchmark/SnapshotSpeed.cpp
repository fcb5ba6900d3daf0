// How fast a device's state is copied and written, against memcpy and against plain writing of as many bytes.
#include "../runtime/StateOnly.h"

#include "snapshot/DeviceState.h"
#include "zorse/runtime/Snapshot.h"

#include <chrono>
#include <fcntl.h>
#include <unistd.h>

using namespace zorse;
using namespace zorse::runtime;
using namespace zorse::runtime::test;

namespace {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

template <typename Work> double best(int times, const Work &work) {
  double least = 1e30;
  for (int i = 0; i < times; ++i) {
    double begin = now();
    work();
    least = std::min(least, now() - begin);
  }
  return least;
}

} // namespace

/// \param argv  megabytes of state (default 1024), directory (default: a temporary one)
int main(int argc, char **argv) {
  double megabytes = argc > 1 ? std::atof(argv[1]) : 1024;
  TemporaryFolder folder;
  std::string directory = argc > 2 ? argv[2] : folder.path("snapshots");
  StateOnlyOptions options;
  options.devices = 1;
  options.frozen = {};
  options.scale = int64_t(megabytes * 1e6 / (3 * 4 * 6)); // parameters and two moments of 1 + 2 + 3 parts
  Bundle bundle = stateOnly(folder, options);
  std::unique_ptr<Executor> executor = stateExecutor(bundle);
  if (!executor)
    return 1;
  auto state = DeviceState::create(*executor, layoutOf(bundle, 0));
  if (state.failed())
    return 1;
  double bytes = double(state->layout().stateBytes);
  std::memset(executor->address(0, bundle.programs[0].state(0).region()), 1, bundle.programs[0].arenas(0).bytes() - 64);

  std::vector<std::byte> target(size_t(bytes), std::byte(1));
  double memcpySeconds = best(5, [&] { std::memcpy(target.data(), executor->address(0, bundle.programs[0].state(0).region()), size_t(bytes)); });
  double copySeconds = best(5, [&] { state->copy(); });
  std::string plain = folder.path("plain");
  std::filesystem::create_directories(directory);
  if (argc > 2)
    plain = directory + "/plain";
  double writeSeconds = best(3, [&] {
    int file = ::open(plain.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
    for (size_t at = 0; at < target.size(); at += 16 << 20)
      if (::write(file, target.data() + at, std::min<size_t>(16 << 20, target.size() - at)) < 0)
        std::perror("write");
    ::fsync(file);
    ::close(file);
  });
  ::unlink(plain.c_str());

  auto group = makeSoloGroup(1);
  SnapshotOptions snapshotOptions;
  snapshotOptions.directory = directory;
  snapshotOptions.keep = 1;
  auto snapshots = Snapshots::open(*executor, bundle, *group, snapshotOptions, {});
  if (snapshots.failed()) {
    std::fprintf(stderr, "%s\n", snapshots.message().c_str());
    return 1;
  }
  uint64_t step = 0;
  double snapshotSeconds = best(3, [&] {
    (*snapshots)->takeNow(++step);
    if (Status status = (*snapshots)->finish(); status.failed())
      std::fprintf(stderr, "%s\n", status.message().c_str());
  });
  double readSeconds = best(2, [&] {
    if (auto point = (*snapshots)->resume(true, nullptr); point.failed() || !*point)
      std::fprintf(stderr, "cannot resume\n");
  });
  std::printf("state %.0f MB\n", bytes / 1e6);
  std::printf("copy      %7.3f s  %6.2f GB/s  %.2f of memcpy\n", copySeconds, bytes / copySeconds / 1e9, memcpySeconds / copySeconds);
  std::printf("snapshot  %7.3f s  %6.2f GB/s  %.2f of write and fsync\n", snapshotSeconds, bytes / snapshotSeconds / 1e9, writeSeconds / snapshotSeconds);
  std::printf("resume    %7.3f s  %6.2f GB/s\n", readSeconds, bytes / readSeconds / 1e9);
  return 0;
}
