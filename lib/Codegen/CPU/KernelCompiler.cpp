#include "KernelCompiler.h"

#include "KernelCache.h"
#include "LowerKernel.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Process.h"
#include "llvm/Support/Program.h"
#include "llvm/Support/SHA256.h"
#include "llvm/TargetParser/Host.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <optional>
#include <thread>

using namespace llvm;
using namespace zorse::codegen;

/// Raised whenever the lowering of equal text changes: objects of other versions are then not found in the cache.
static constexpr const char *kLoweringVersion = "3";

/// "native" is the highest level of x86-64 this machine has, not its exact CPU: the runtime can check a level, bundles of similar machines are equal,
/// and a bundle runs on every machine of that level.
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
  return has({"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}) ? "x86-64-v4" : "x86-64-v3";
}

KernelSet::~KernelSet() = default;

KernelSet::KernelSet(const CodegenOptions &options) : options(options), cache(KernelCache::open(options)) {
  target.triple = sys::getProcessTriple();
  target.cpu = resolveArch(options.arch);
  if (StringRef(target.cpu).starts_with("x86-64-v"))
    target.features = "-prefer-256-bit"; // generic levels tune for old CPUs otherwise
}

std::string KernelSet::add(StringRef hint, std::string text) {
  SHA256 hash;
  for (StringRef part : {StringRef(kLoweringVersion), StringRef(LLVM_VERSION_STRING), StringRef(target.triple), StringRef(target.cpu),
                         StringRef(target.features), StringRef(text)}) {
    hash.update(part);
    hash.update(StringRef("\0", 1));
  }
  hash.update(utostr(options.optimizationLevel));
  std::string symbol = (hint + "_" + toHex(ArrayRef<uint8_t>(hash.final()).take_front(12), /*LowerCase=*/true)).str();
  sources.insert({symbol, std::move(text)});
  return symbol;
}

Expected<std::string> KernelSet::compile(const std::string &symbol, const std::string &text) const {
  KernelTarget kernelTarget{target.triple, target.cpu, target.features, options.optimizationLevel};
  std::string dump = options.dumpDir.empty() ? std::string() : (Twine(options.dumpDir) + "/" + symbol).str();
  return lowerKernel(symbol, text, kernelTarget, dump);
}

namespace {
/// A directory of its own that is gone at the end of the scope.
struct TemporaryDirectory {
  SmallString<128> path;
  std::error_code error = sys::fs::createUniqueDirectory("zorse-link", path);
  ~TemporaryDirectory() {
    if (!error)
      sys::fs::remove_directories(path);
  }
};
} // namespace

static Expected<std::string> linkObjects(ArrayRef<std::pair<std::string, std::string>> objects) {
  TemporaryDirectory directory;
  if (directory.error)
    return createStringError(directory.error, "cannot make a temporary directory for the linker");
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
    return createStringError("no linker found for the kernels: expected ld.lld-22, ld.lld, ld or cc in PATH; install lld-22");
  std::string output = (directory.path + "/kernels.so").str();
  arguments = {linker, "-shared", "-o", output};
  if (driver)
    arguments.push_back("-nostdlib");
  // Named by position: the linker records input names, and those must not depend on the directory.
  for (auto [index, object] : enumerate(objects)) {
    std::string path = (directory.path + "/" + Twine(index) + ".o").str();
    std::error_code error;
    raw_fd_ostream out(path, error);
    if (error)
      return createStringError(error, "cannot write " + path);
    out << object.second;
    arguments.push_back(path);
  }
  std::vector<StringRef> references(arguments.begin(), arguments.end());
  std::string message, log = (directory.path + "/log").str();
  std::optional<StringRef> redirects[] = {StringRef(""), StringRef(log), StringRef(log)};
  if (int status = sys::ExecuteAndWait(linker, references, std::nullopt, redirects, 60, 0, &message)) {
    if (auto text = MemoryBuffer::getFile(log))
      message += (*text)->getBuffer();
    return createStringError("linking the kernels failed (" + linker + " exited with " + std::to_string(status) + "): " + message);
  }
  auto buffer = MemoryBuffer::getFile(output);
  if (!buffer)
    return createStringError(buffer.getError(), "cannot read the linked kernels");
  return (*buffer)->getBuffer().str();
}

void KernelSet::retain(const std::set<std::string> &symbols) {
  for (auto it = sources.begin(); it != sources.end();)
    it = symbols.count(it->first) ? std::next(it) : sources.erase(it);
}

Expected<std::string> KernelSet::link(unsigned &compiled) {
  if (!options.dumpDir.empty())
    if (auto error = sys::fs::create_directories(options.dumpDir))
      return createStringError(error, "cannot make " + options.dumpDir);
  std::vector<std::pair<std::string, std::string>> objects; // symbol, bytes
  std::vector<unsigned> missing;
  for (auto &[symbol, text] : sources)
    objects.push_back({symbol, {}});
  llvm::sort(objects);
  for (auto [index, object] : enumerate(objects)) {
    if (cache && options.dumpDir.empty())
      if (std::optional<std::string> cached = cache->find(object.first)) {
        object.second = std::move(*cached);
        continue;
      }
    missing.push_back(index);
  }
  compiled = missing.size();

  initializeTargets();
  std::vector<std::string> errors(missing.size());
  std::atomic<size_t> next{0};
  auto work = [&] {
    for (size_t i; (i = next++) < missing.size();) {
      auto &object = objects[missing[i]];
      Expected<std::string> bytes = compile(object.first, sources.find(object.first)->second);
      if (!bytes) {
        errors[i] = toString(bytes.takeError());
        continue;
      }
      object.second = std::move(*bytes);
      if (cache)
        cache->keep(object.first, object.second);
    }
  };
  std::vector<std::thread> threads;
  for (size_t i = 1; i < std::min<size_t>(std::max(1u, options.threads), missing.size()); ++i)
    threads.emplace_back(work);
  work();
  for (std::thread &thread : threads)
    thread.join();
  for (const std::string &error : errors)
    if (!error.empty())
      return createStringError(error);
  return linkObjects(objects);
}
