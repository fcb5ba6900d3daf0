// Kernels for host CPUs: one object file per kernel, linked to one shared object.
#include "KernelSet.h"
#include "LowerKernel.h"
#include "RowKernel.h"
#include "zorse/Codegen/PrivateDirectory.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Process.h"
#include "llvm/Support/Program.h"
#include "llvm/TargetParser/Host.h"

#include <optional>

using namespace llvm;
using namespace zorse::codegen;

/// "native" is the highest x86-64 level of this machine, not its exact CPU. The runtime can check a
/// level, bundles from similar machines are equal, and a bundle runs on every machine of that
/// level.
std::string zorse::codegen::resolveArch(const std::string &arch) {
  if (arch != "native")
    return arch;
  StringMap<bool> host = sys::getHostCPUFeatures();
  auto has = [&](std::initializer_list<const char *> features) {
    return all_of(features, [&](const char *feature) { return host.lookup(feature); });
  };
  if (!has({"sse4.2", "popcnt", "cx16"}))
    return sys::getHostCPUName().str();
  if (!has({"avx2", "fma", "bmi", "bmi2", "f16c", "lzcnt", "movbe"}))
    return "x86-64-v2";
  return has({"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}) ? "x86-64-v4"
                                                                          : "x86-64-v3";
}

static Expected<std::string> linkObjects(ArrayRef<std::pair<std::string, std::string>> objects) {
  Expected<std::unique_ptr<PrivateDirectory>> folder = PrivateDirectory::create("zorse-link");
  if (!folder)
    return folder.takeError();
  const std::string directory = (*folder)->path();
  std::vector<std::string> arguments;
  std::string linker;
  bool driver = false;
  for (const char *name : {"ld.lld-22", "ld.lld", "ld", "cc"})
    if (auto found = sys::findProgramByName(name)) {
      linker = *found;
      driver = StringRef(name) == "cc";
      break;
    }
  if (linker.empty())
    return createStringError("no linker found for the kernels: expected ld.lld-22, ld.lld, ld or "
                             "cc in PATH; install lld-22");
  std::string output = directory + "/kernels.so";
  arguments = {linker, "-shared", "-o", output};
  if (driver)
    arguments.push_back("-nostdlib");
  // File names are positions: the linker records input names, and the output must not depend on the
  // directory.
  for (auto [index, object] : enumerate(objects)) {
    std::string path = directory + "/" + std::to_string(index) + ".o";
    std::error_code error;
    raw_fd_ostream out(path, error);
    if (error)
      return createStringError(error, "cannot write " + path);
    out << object.second;
    arguments.push_back(path);
  }
  std::vector<StringRef> references(arguments.begin(), arguments.end());
  std::string message, log = directory + "/log";
  std::optional<StringRef> redirects[] = {StringRef(""), StringRef(log), StringRef(log)};
  if (int status =
          sys::ExecuteAndWait(linker, references, std::nullopt, redirects, 60, 0, &message)) {
    if (auto text = MemoryBuffer::getFile(log))
      message += (*text)->getBuffer();
    return createStringError("linking the kernels failed (" + linker + " exited with " +
                             std::to_string(status) + "): " + message);
  }
  auto buffer = MemoryBuffer::getFile(output);
  if (!buffer)
    return createStringError(buffer.getError(), "cannot read the linked kernels");
  return (*buffer)->getBuffer().str();
}

namespace {

class CpuKernels final : public KernelSet {
public:
  CpuKernels(const CodegenOptions &options, KernelTarget target)
      : KernelSet(options, target.triple + '\0' + target.cpu + '\0' + target.features),
        target(std::move(target)) {
    initializeTargets();
  }

  StringRef name() const override { return "CPU"; }
  Kernel row(const KernelContext &context, int cluster) override {
    return buildRowKernel(context, cluster);
  }
  Kernel column(const KernelContext &context, int cluster) override {
    return buildColumnKernel(context, cluster);
  }
  Kernel scatter(const KernelContext &context, int cluster) override {
    return buildScatterKernel(context, cluster);
  }
  std::string arch() const override { return target.cpu; }
  const char *object() const override { return "kernels.so"; }

private:
  KernelTarget target;

  Expected<std::string> compile(const std::string &symbol, const std::string &text) const override {
    return lowerKernel(symbol, text, target, dumpOf(symbol));
  }
  Expected<std::string> join(const Objects &objects) const override { return linkObjects(objects); }
};

} // namespace

std::shared_ptr<KernelSet> zorse::codegen::makeCpuKernels(const CodegenOptions &options) {
  KernelTarget target{
      sys::getProcessTriple(), resolveArch(options.arch), {}, options.optimizationLevel};
  if (StringRef(target.cpu).starts_with("x86-64-v"))
    target.features = "-prefer-256-bit"; // otherwise generic levels are tuned for old CPUs
  return std::make_shared<CpuKernels>(options, std::move(target));
}
