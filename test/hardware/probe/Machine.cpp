// Describes the machine: versions, GPUs, and the memory that a run needs in addition to its
// program's own.
#include "Probe.h"

#include "device/cuda/BlasLt.h"
#include "zorse/runtime/DeviceTransport.h"
#include "zorse/runtime/Drivers.h"

#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <sys/wait.h>
#include <unistd.h>

using namespace zorse;
using namespace zorse::probe;
using namespace zorse::runtime::cuda;

static double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

static std::string seconds(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f s", value);
  return text;
}

int probe::describeMachine() {
  auto driver = runtime::findDriver("cuda", "kit");
  if (driver.failed())
    return say("driver", false, driver.message()), 1;
  const std::string version = (*driver)->version();
  say("driver", !version.empty(), version.empty() ? "no driver answers" : "CUDA " + version);
  int number = 0;
  for (const runtime::HardwareUnit &unit : (*driver)->units())
    say("GPU " + std::to_string(number++), unit.architecture != "none",
        unit.model + ", " + unit.architecture + ", " + mebibytes(unit.memory) + ", PCI " +
            unit.address + ", " + unit.id);
  const double begin = now();
  Result<const CudaApi *> api = openGpu();
  if (api.failed())
    return say("context", false, api.message()), 1;
  const FreeMemory context = freeMemory(**api);
  say("context", true,
      seconds(now() - begin) + "; " + mebibytes(context.left) + " of " + mebibytes(context.all) +
          " are free with it");
  const double before = now();
  Result<std::unique_ptr<BlasLt>> blas = BlasLt::create(**api);
  if (blas.failed())
    return say("cuBLASLt", false, blas.message()), 1;
  const FreeMemory products = freeMemory(**api);
  say("cuBLASLt", true,
      (*blas)->version() + ", " + seconds(now() - before) + ", " +
          mebibytes(context.left - products.left) + " of the GPU's memory");
  const Result<std::string> nccl = runtime::ncclVersion();
  say("NCCL", !nccl.failed(), nccl.failed() ? nccl.message() : "NCCL " + *nccl);
  return 0;
}

/// Objects are in a folder named after their architecture.
int probe::loadModules(const std::string &directory) {
  Result<const CudaApi *> api = openGpu();
  if (api.failed())
    return say("modules", false, api.message()), 1;
  const CudaApi &cuda = **api;
  std::vector<std::filesystem::path> files;
  for (const auto &entry : std::filesystem::recursive_directory_iterator(directory))
    if (entry.is_regular_file())
      files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  Result<std::string> runs = [&]() -> Result<std::string> {
    auto driver = runtime::findDriver("cuda", "kit");
    if (driver.failed())
      return driver.error();
    return (*driver)->units().front().architecture;
  }();
  if (runs.failed())
    return say("modules", false, runs.message()), 1;
  for (const std::filesystem::path &file : files) {
    std::ostringstream image;
    image << std::ifstream(file, std::ios::binary).rdbuf();
    const std::string arch = file.parent_path().filename().string(), text = image.str();
    char log[8192] = "";
    int options[] = {kJitErrorLogBuffer, kJitErrorLogBytes};
    void *values[] = {log,
                      reinterpret_cast<void *>(sizeof log)}; // NOLINT(performance-no-int-to-ptr):
                                                             // sizes are passed by value
    CUmodule module = nullptr;
    const double begin = now();
    const CUresult result = cuda.cuModuleLoadDataEx(&module, text.c_str(), 2, options, values);
    const double took = now() - begin;
    const bool wanted = findDeviceKind("cuda")->runs(*runs, arch);
    std::string figure = seconds(took) + " for " + std::to_string(text.size() >> 10) + " KiB";
    if (result != kSuccess)
      figure = cuda.describe("cuModuleLoadDataEx", result) +
               (log[0] ? std::string("; ") + log : "") +
               (wanted ? "" : " (as it should be: this GPU is older)");
    char number[48];
    std::snprintf(number, sizeof number, "\"seconds\": %.4f", took);
    say("load " + arch + "/" + file.filename().string(), (result == kSuccess) == wanted || !wanted,
        figure, number);
    if (module)
      cuda.cuModuleUnload(module);
  }
  return 0;
}

int probe::leaveMemory(size_t bytes, char **command) {
  Result<const CudaApi *> api = openGpu();
  if (api.failed())
    return say("leave", false, api.message()), 1;
  const FreeMemory before = freeMemory(**api);
  CUdeviceptr ballast = 0;
  if (before.left > bytes) {
    const CUresult result = (*api)->cuMemAlloc_v2(&ballast, before.left - bytes);
    if (result != kSuccess)
      return say("leave", false, (*api)->describe("cuMemAlloc", result)), 1;
  }
  std::fprintf(stderr, "%s of %s are left\n", mebibytes(freeMemory(**api).left).c_str(),
               mebibytes(before.all).c_str());
  const pid_t child = fork();
  if (child == 0) {
    execvp(command[0], command);
    std::perror(command[0]);
    _exit(127);
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (ballast)
    (*api)->cuMemFree_v2(ballast);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}
