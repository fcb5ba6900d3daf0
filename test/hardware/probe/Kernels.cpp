// Runs kernels that were compiled on another machine (test/conformance/CaseFile.h): checks that
// their results are within tolerance, or times them.
#include "Probe.h"

#include "CaseFile.h"
#include "TemporaryDirectory.h"

#include "zorse/runtime/HalfTypes.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>

using namespace zorse;
using namespace zorse::probe;
using namespace zorse::conformance;

namespace {

double element(const std::string &bytes, const ExpectedResult &result, size_t i) {
  auto as = [&](auto value) {
    std::memcpy(&value, bytes.data() + result.offset + i * sizeof value, sizeof value);
    return value;
  };
  if (result.type == "f32")
    return double(as(float()));
  if (result.type == "f64")
    return as(double());
  const uint16_t half = as(uint16_t());
  return result.type == "bf16" ? runtime::widen<runtime::HalfType::BF16>(half)
                               : runtime::widen<runtime::HalfType::F16>(half);
}

/// A case on a separate device.
class Loaded {
public:
  Status load(const CaseFile &file) {
    const std::string &arch = file.library.arch();
    if (file.library.objects_size() > 0)
      directory.write(arch + "/" + file.library.objects(0), file.object);
    Result<std::unique_ptr<runtime::QueuedDevice>> made = makeGpu("kit");
    if (made.failed())
      return made.error();
    device = std::move(*made);
    return device->loadFunctions(file.library, directory.path(""));
  }

  Status place(const CaseRun &run) {
    memory.clear();
    addresses.clear();
    for (size_t s = 0; s < run.bytes.size(); ++s) {
      auto one = device->allocate(bundle::DEVICE, run.bytes[s] + 64, {});
      if (one.failed())
        return one.error();
      addresses.push_back((*one)->base());
      memory.push_back(std::move(*one));
      if (s < run.arguments.size())
        if (Status status =
                device->write(addresses.back(), run.arguments[s].data(), run.arguments[s].size());
            status.failed())
          return status;
    }
    return Status::success();
  }

  runtime::FunctionArguments arguments(const CaseRun &run) const {
    return {{run.rows, run.sampleBase, run.rngIdBase}, addresses.data(), run.overwrite.data()};
  }

  /// The maximum error relative to its tolerance; an error if a number is out of tolerance.
  Result<double> compare(const CaseRun &run) {
    double worst = 0;
    for (const ExpectedResult &result : run.results) {
      std::string bytes(run.bytes[result.argument], 0);
      if (Status status = device->read(bytes.data(), addresses[result.argument], bytes.size());
          status.failed())
        return status.error();
      for (size_t i = 0; i < result.middle.size(); ++i) {
        const double got = element(bytes, result, i), want = double(result.middle[i]),
                     band = double(result.error[i]);
        if ((std::isnan(want) && std::isnan(got)) || got == want)
          continue;
        const double off = std::fabs(got - want);
        if (!(off <= band))
          return runtime::userError("element " + std::to_string(i) + " is " + std::to_string(got) +
                                    ", expected " + std::to_string(want) + ", band " +
                                    std::to_string(band));
        worst = std::max(worst, band > 0 ? off / band : 0);
      }
    }
    return worst;
  }

  runtime::test::TemporaryDirectory directory;
  std::unique_ptr<runtime::QueuedDevice> device;
  std::vector<std::unique_ptr<runtime::DeviceMemory>> memory;
  std::vector<runtime::DeviceAddress> addresses;
};

std::string number(const char *format, double value) {
  char text[48];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

void replay(const CaseFile &file) {
  Loaded loaded;
  if (Status status = loaded.load(file); status.failed())
    return say(file.name, false, status.message());
  double worst = 0;
  for (const CaseRun &run : file.runs) {
    if (Status status = loaded.place(run); status.failed())
      return say(file.name, false, status.message());
    if (Status status = loaded.device->runFunction(0, loaded.arguments(run)); status.failed())
      return say(file.name, false, status.message());
    const Result<double> one = loaded.compare(run);
    if (one.failed())
      return say(file.name, false, one.message());
    worst = std::max(worst, *one);
  }
  say(file.name, true, number("worst error %.3f of its band", worst));
}

/// Times a case. The minimum memory traffic is every slot once. Launches of one body are
/// distinguished by name.
void time(const CaseFile &file, const runtime::cuda::CudaApi &cuda) {
  Loaded loaded;
  if (Status status = loaded.load(file); status.failed())
    return say(file.name, false, status.message());
  const CaseRun &run = file.runs.front();
  if (Status status = loaded.place(run); status.failed())
    return say(file.name, false, status.message());
  for (size_t s = 0; s < loaded.addresses.size(); ++s)
    if (Status status = loaded.device->fill(loaded.addresses[s], std::byte(0), run.bytes[s]);
        status.failed())
      return say(file.name, false, status.message());
  class Puts final : public runtime::StreamTask {
  public:
    const runtime::FunctionCall call;
    const runtime::cuda::CudaApi &cuda;
    Result<double> seconds = 0.0;
    Puts(runtime::FunctionCall call, const runtime::cuda::CudaApi &cuda) : call(call), cuda(cuda) {}
    Status put(uint64_t, runtime::WorkStream &stream) override {
      GpuTimer timer(cuda, stream.handle());
      seconds = timer.seconds(5, 10, [&](runtime::cuda::CUstream) { return stream.call(call); });
      return seconds.failed() ? Status(seconds.error()) : Status::success();
    }
  } task({0, loaded.arguments(run)}, cuda);
  if (Status status = loaded.device->onStream(task); status.failed())
    return say(file.name, false, status.message());
  uint64_t bytes = 0;
  for (const uint64_t argument : run.bytes)
    bytes += argument;
  const double rate = double(bytes) / *task.seconds * 1e-9;
  say(file.name, true,
      number("%.1f us", *task.seconds * 1e6) + ", " + number("%.0f GB/s", rate) + " for " +
          number("%.1f MB", double(bytes) * 1e-6),
      number("\"seconds\": %.9f", *task.seconds) + ", \"bytes\": " + std::to_string(bytes));
}

/// Times a copy, as a reference for memory-bound kernels.
void timeCopy(const runtime::cuda::CudaApi &cuda) {
  constexpr size_t kBytes = size_t(128) << 20;
  runtime::cuda::CUdeviceptr memory = 0;
  const char *name = "a copy in the GPU's memory";
  if (Status status = cuda.check("cuMemAlloc", cuda.cuMemAlloc_v2(&memory, 2 * kBytes));
      status.failed())
    return say(name, false, status.message());
  Result<double> seconds = 0.0;
  {
    GpuTimer timer(cuda);
    seconds = timer.seconds(5, 4, [&](runtime::cuda::CUstream stream) {
      return cuda.check("cuMemcpyAsync",
                        cuda.cuMemcpyAsync(memory + kBytes, memory, kBytes, stream));
    });
  }
  cuda.cuMemFree_v2(memory);
  if (seconds.failed())
    return say(name, false, seconds.message());
  say(name, true, number("%.0f GB/s read and written", 2 * double(kBytes) / *seconds * 1e-9),
      number("\"seconds\": %.9f", *seconds) + ", \"bytes\": " + std::to_string(2 * kBytes));
}

} // namespace

int probe::replayKernels(const std::string &directory, bool timed) {
  Result<const runtime::cuda::CudaApi *> api = openGpu(); // keeps the GPU's context between cases
  if (api.failed())
    return say("kernels", false, api.message()), 1;
  if (timed)
    timeCopy(**api);
  std::vector<std::filesystem::path> files;
  for (const auto &entry : std::filesystem::directory_iterator(directory))
    if (entry.path().extension() == ".case")
      files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  for (const std::filesystem::path &path : files) {
    CaseFile file;
    if (const std::string problem = file.read(path.string()); !problem.empty())
      say(path.filename().string(), false, problem);
    else if (timed)
      time(file, **api);
    else
      replay(file);
  }
  return files.empty() ? (say("kernels", false, "no cases in " + directory), 1) : 0;
}
