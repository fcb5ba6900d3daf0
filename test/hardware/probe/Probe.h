// gpu-probe: the checks of the validation kit on one GPU, with the runtime's own driver
// (docs/guides/nvidia-gpus.md).
//
// A command prints a line of JSON for each check, {"check": name, "good": bool, "figure": text,
// ...}, and nothing else, so that earlier results are known if a later check hangs or ends the
// process.
#pragma once

#include "device/cuda/CudaApi.h"
#include "zorse/runtime/Device.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace zorse::probe {

using runtime::Result;
using runtime::Status;

/// Prints a check. \param more  additional members of the line: `"seconds": 1.5`
void say(const std::string &check, bool good, const std::string &figure,
         const std::string &more = "");
/// Prints a check that passes if `status` is a success; otherwise prints the error. \return whether
/// it passed
bool sayStatus(const std::string &check, const Status &status, const std::string &figure);

/// The driver, with the context of the first GPU current; held until the process ends.
Result<const runtime::cuda::CudaApi *> openGpu();
/// A device of the runtime on the first GPU.
Result<std::unique_ptr<runtime::QueuedDevice>> makeGpu(const std::string &name);

struct FreeMemory {
  size_t left = 0, all = 0;
};
FreeMemory freeMemory(const runtime::cuda::CudaApi &cuda);
std::string mebibytes(size_t bytes);

/// Measures the GPU time of work on a stream, with an event before and after it: the minimum of
/// several tries.
class GpuTimer {
public:
  /// \param stream  null: creates a separate one
  explicit GpuTimer(const runtime::cuda::CudaApi &cuda, runtime::cuda::CUstream stream = nullptr);
  ~GpuTimer();
  /// \param put  called `inner` times to put the work on the stream
  template <typename Put> Result<double> seconds(int tries, int inner, Put put) {
    double min = 1e300;
    for (int i = 0; i < tries; ++i) {
      if (Status status = begin(); status.failed())
        return status.error();
      for (int j = 0; j < inner; ++j)
        if (Status status = put(stream_); status.failed())
          return status.error();
      Result<double> one = end();
      if (one.failed())
        return one.error();
      min = std::min(min, *one / inner);
    }
    return min;
  }
  runtime::cuda::CUstream stream() const { return stream_; }

private:
  Status begin();
  Result<double> end();
  const runtime::cuda::CudaApi &cuda_;
  runtime::cuda::CUstream stream_ = nullptr, own_ = nullptr;
  runtime::cuda::CUevent before_ = nullptr, behind_ = nullptr;
};

// Commands, by file. \return  exit status: 0 if all checks were made, whatever their result; 1 if a
// check could not be made
int describeMachine();
int loadModules(const std::string &directory);
int replayKernels(const std::string &directory, bool timed);
int multiplyMatrices(const std::string &list);
int tryNccl();
int leaveMemory(size_t bytes, char **command);

} // namespace zorse::probe
