// gpu-probe COMMAND ...
//
// - machine: prints versions, GPUs by number, and memory before and after allocating what a run
//   needs in addition to its program
// - modules FOLDER: loads every kernel object in the folder, and prints the time that the driver
//   takes to compile it
// - kernels FOLDER: runs the output of kernel-conformance --record, and compares results
// - times FOLDER: runs it for timing
// - products LIST: multiplies matrices of the sizes in a file, and compares samples of the results
// - nccl: makes calls on a communicator of one rank, and aborts it behind long-running work
// - leave MIB COMMAND: allocates all but MIB of the GPU's memory, and runs a command
#include "Probe.h"

#include "zorse/runtime/Drivers.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

using namespace zorse;
using namespace zorse::probe;
using namespace zorse::runtime::cuda;

static std::string quoted(const std::string &text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\')
      out += '\\';
    if (static_cast<unsigned char>(c) < 0x20) {
      char code[8];
      std::snprintf(code, sizeof code, "\\u%04x", unsigned(c));
      out += code;
    } else {
      out += c;
    }
  }
  return out + "\"";
}

void probe::say(const std::string &check, bool good, const std::string &figure,
                const std::string &more) {
  std::printf("{\"check\": %s, \"good\": %s, \"figure\": %s%s%s}\n", quoted(check).c_str(),
              good ? "true" : "false", quoted(figure).c_str(), more.empty() ? "" : ", ",
              more.c_str());
  std::fflush(stdout);
}

bool probe::sayStatus(const std::string &check, const Status &status, const std::string &figure) {
  say(check, status.succeeded(), status.failed() ? status.message() : figure);
  return status.succeeded();
}

Result<const CudaApi *> probe::openGpu() {
  Result<const CudaApi *> api = cudaApi();
  if (api.failed())
    return api;
  const CudaApi &cuda = **api;
  int count = 0;
  CUcontext context = nullptr;
  if (Status status = cuda.check("cuDeviceGetCount", cuda.cuDeviceGetCount(&count));
      status.failed())
    return status.error();
  if (count == 0)
    return runtime::userError("this process sees no GPU (CUDA_VISIBLE_DEVICES, nvidia-smi)");
  if (Status status =
          cuda.check("cuDevicePrimaryCtxRetain", cuda.cuDevicePrimaryCtxRetain(&context, 0));
      status.failed())
    return status.error();
  if (Status status = cuda.check("cuCtxSetCurrent", cuda.cuCtxSetCurrent(context)); status.failed())
    return status.error();
  return api;
}

Result<std::unique_ptr<runtime::QueuedDevice>> probe::makeGpu(const std::string &name) {
  auto driver = runtime::findDriver("cuda", name);
  if (driver.failed())
    return driver.error();
  runtime::DeviceRequest request;
  request.name = name;
  return (*driver)->make(request);
}

FreeMemory probe::freeMemory(const CudaApi &cuda) {
  FreeMemory memory;
  cuda.cuMemGetInfo_v2(&memory.left, &memory.all);
  return memory;
}

std::string probe::mebibytes(size_t bytes) { return std::to_string(bytes >> 20) + " MiB"; }

GpuTimer::GpuTimer(const CudaApi &cuda, CUstream stream) : cuda_(cuda), stream_(stream) {
  if (!stream) {
    cuda.cuStreamCreate(&own_, kStreamNonBlocking);
    stream_ = own_;
  }
  cuda.cuEventCreate(&before_, 0);
  cuda.cuEventCreate(&behind_, 0);
}
GpuTimer::~GpuTimer() {
  cuda_.cuEventDestroy_v2(before_);
  cuda_.cuEventDestroy_v2(behind_);
  if (own_)
    cuda_.cuStreamDestroy_v2(own_);
}
Status GpuTimer::begin() {
  return cuda_.check("cuEventRecord", cuda_.cuEventRecord(before_, stream_));
}
Result<double> GpuTimer::end() {
  float milliseconds = 0;
  for (auto [what, result] : {std::pair("cuEventRecord", cuda_.cuEventRecord(behind_, stream_)),
                              {"cuEventSynchronize", cuda_.cuEventSynchronize(behind_)}})
    if (Status status = cuda_.check(what, result); status.failed())
      return status.error();
  if (Status status = cuda_.check("cuEventElapsedTime",
                                  cuda_.cuEventElapsedTime(&milliseconds, before_, behind_));
      status.failed())
    return status.error();
  return double(milliseconds) * 1e-3;
}

int main(int argc, char **argv) {
  const std::string command = argc > 1 ? argv[1] : "", argument = argc > 2 ? argv[2] : "";
  if (command == "machine" && argc == 2)
    return describeMachine();
  if (command == "modules" && argc == 3)
    return loadModules(argument);
  if ((command == "kernels" || command == "times") && argc == 3)
    return replayKernels(argument, command == "times");
  if (command == "products" && argc == 3)
    return multiplyMatrices(argument);
  if (command == "nccl" && argc == 2)
    return tryNccl();
  if (command == "leave" && argc > 3)
    return leaveMemory(size_t(std::strtoull(argv[2], nullptr, 10)) << 20, argv + 3);
  std::fprintf(stderr, "usage: gpu-probe machine | modules FOLDER | kernels FOLDER | times FOLDER "
                       "| products LIST | nccl | leave MIB COMMAND...\n");
  return 2;
}
