#include "StandbyBundles.h"

#include "zorse/Bundle/Manifest.h"

#include <filesystem>

#include <unistd.h>

using namespace zorse::run;
using namespace zorse::runtime;
namespace fs = std::filesystem;

namespace {

/// Returns the path of zorse-compile: next to this program, or as found in PATH by env.
std::string findCompiler() {
  std::error_code none;
  const fs::path own = fs::read_symlink("/proc/self/exe", none);
  const fs::path beside = own.parent_path() / "zorse-compile";
  return fs::exists(beside, none) ? beside.string() : "zorse-compile";
}

} // namespace

std::string zorse::run::listed(const DeviceNames &names) {
  std::string text;
  for (const std::string &name : names) {
    text += text.empty() ? "" : ", ";
    text += name;
  }
  return text;
}

StandbyBundles::StandbyBundles(std::string base, std::string directory)
    : base(std::move(base)), directory(std::move(directory)), compiler(findCompiler()) {}

std::string StandbyBundles::pathOf(const DeviceNames &excluded) const {
  constexpr size_t kDigits = 16;
  return directory + "/without-" + bundle::sha256(listed(excluded)).substr(0, kDigits) + ".zorse";
}

std::optional<std::string> StandbyBundles::find(const DeviceNames &excluded) const {
  if (excluded.empty())
    return base;
  const auto found = compiled.find(excluded);
  return found == compiled.end() ? std::nullopt : std::optional(found->second);
}

std::optional<std::string> StandbyBundles::problem(const DeviceNames &excluded) const {
  const auto found = problems.find(excluded);
  return found == problems.end() ? std::nullopt : std::optional(found->second);
}

void StandbyBundles::request(const DeviceNames &excluded, const std::string &near, bool urgent) {
  if (find(excluded) || problem(excluded) || (process && (!urgent || inProgress == excluded)))
    return;
  process.reset();
  inProgress = excluded;
  std::error_code failure;
  fs::create_directories(directory, failure); // if this fails, the output file cannot be opened
  std::vector<std::string> arguments = {compiler,
                                        "--near",
                                        near,
                                        "--cluster",
                                        base + "/cluster.yaml",
                                        "--exclude",
                                        "",
                                        "--weights=reference",
                                        "--quiet",
                                        "-o",
                                        pathOf(excluded)};
  for (const std::string &name : excluded) {
    std::string &list = arguments[6];
    list += list.empty() ? "" : ",";
    list += name;
  }
  if (compiler.find('/') == std::string::npos)
    arguments.insert(arguments.begin(), "/usr/bin/env");
  Result<std::unique_ptr<BackgroundProcess>> started =
      BackgroundProcess::start(arguments, pathOf(excluded) + ".log", urgent);
  if (started.failed())
    problems[excluded] = started.message();
  else
    process = std::move(*started);
}

std::optional<DeviceNames> StandbyBundles::poll() {
  const std::optional<int> code = process ? process->poll() : std::nullopt;
  if (!code)
    return std::nullopt;
  process.reset();
  if (*code == 0) {
    compiled[inProgress] = pathOf(inProgress);
    return std::nullopt;
  }
  constexpr size_t kLines = 12;
  const std::string said = lastLines(pathOf(inProgress) + ".log", kLines);
  problems[inProgress] =
      *code == 127 && said.empty()
          ? compiler + ": cannot be executed; it must be installed next to zorse-run or in PATH"
          : said;
  return inProgress;
}
