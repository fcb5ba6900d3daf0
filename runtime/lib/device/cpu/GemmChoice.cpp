// Chooses the matmul library: by option, by the stored measurement, or by measuring.
#include "Gemm.h"

#include "zorse/Support/RegularFile.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace zorse::runtime;

namespace {

const Gemm *byName(const std::string &name) {
  if (name == "openblas")
    return openBlasGemm();
  if (name == "onednn")
    return oneDnnGemm();
  return nullptr;
}

std::string cacheDirectory() {
  if (const char *directory = std::getenv("XDG_CACHE_HOME"); directory && *directory)
    return std::string(directory) + "/zorse";
  if (const char *home = std::getenv("HOME"); home && *home)
    return std::string(home) + "/.cache/zorse";
  return {};
}

/// The CPU's model name. Machines that share a home directory store their choices by model.
std::string cpuName() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);)
    if (line.rfind("model name", 0) == 0)
      if (size_t colon = line.find(": "); colon != std::string::npos) {
        std::string name = line.substr(colon + 2);
        std::replace_if(
            name.begin(), name.end(), [](unsigned char c) { return !std::isalnum(c); }, '-');
        return name;
      }
  return "unknown";
}

/// Seconds of the fastest of several matmuls with sizes of a small model.
double measure(const Gemm &gemm) {
  constexpr int64_t m = 256, n = 768, k = 768;
  std::vector<float> a(m * k, 0.5f), b(k * n, 0.25f), c(m * n);
  double best = 1e30;
  for (int repeat = 0; repeat < 6; ++repeat) {
    auto begin = std::chrono::steady_clock::now();
    gemm.multiply(GemmArguments<float>{false, repeat % 2 == 1, m, n, k, 1.0f, a.data(), k, b.data(),
                                       repeat % 2 == 1 ? k : n, 0.0f, c.data(), n});
    best = std::min(
        best, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  return best;
}

std::string readWord(const std::string &path) {
  Result<std::string> text = zorse::readRegularFile(path, 64);
  return text.failed() ? std::string() : text->substr(0, text->find_first_of(" \n"));
}

const Gemm *rememberedOrMeasured() {
  if (!oneDnnGemm())
    return openBlasGemm();
  std::string directory = cacheDirectory();
  if (directory.empty())
    return oneDnnGemm();
  std::string path = directory + "/gemm-" + cpuName();
  if (const Gemm *gemm = byName(readWord(path)))
    return gemm;

  const Gemm *faster = measure(*oneDnnGemm()) <= measure(*openBlasGemm()) ? oneDnnGemm()
                                                                          : openBlasGemm();
  ::mkdir(directory.substr(0, directory.rfind('/')).c_str(), 0700);
  ::mkdir(directory.c_str(),
          0700); // the compiler's cache directory, too: no other user may write to it
  // Written to a draft file and linked to its name: if several processes measure at the same time,
  // the first decides for all.
  std::string draft = path + "." + std::to_string(::getpid());
  const std::string text = faster->name() + std::string("\n");
  if (int file = ::open(draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
      file >= 0) {
    if (::write(file, text.data(), text.size()) == ssize_t(text.size()))
      (void)!::link(draft.c_str(), path.c_str());
    ::close(file);
    ::unlink(draft.c_str());
  }
  const Gemm *agreed = byName(readWord(path));
  return agreed ? agreed : oneDnnGemm();
}

} // namespace

void Gemm::endOverlapping(int64_t leading, int64_t columns) {
  std::fprintf(stderr,
               "internal error: a matrix product of rows of %lld elements that lie %lld apart\n",
               (long long)(columns), (long long)(leading));
  std::abort();
}

Result<const Gemm *> zorse::runtime::chooseGemm(const std::string &name) {
  std::string wanted = name;
  if (wanted.empty())
    if (const char *environment = std::getenv("ZORSE_GEMM"))
      wanted = environment;
  if (!openBlasGemm()) // oneDNN alone is not sufficient: it has no f64 matmul
    return userError(openBlasProblem());
  if (wanted.empty()) {
    static const Gemm *const choice = rememberedOrMeasured();
    return choice;
  }
  if (const Gemm *gemm = byName(wanted))
    return gemm;
  return userError("matrix products: expects \"openblas\"" +
                   std::string(oneDnnGemm() ? " or \"onednn\"" : "") + ", got \"" + wanted +
                   "\" (from ZORSE_GEMM or the device's options)");
}
