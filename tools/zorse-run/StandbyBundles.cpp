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

std::string StandbyBundles::pathOf(const Variant &variant) const {
  constexpr size_t kDigits = 16;
  const std::string slow = slowdownText(variant.slowdowns), text = listed(variant.excluded) + slow;
  return directory + (slow.empty() ? "/without-" : "/slow-") +
         bundle::sha256(text).substr(0, kDigits) + ".zorse";
}

std::optional<std::string> StandbyBundles::find(const Variant &variant) const {
  if (variant == Variant())
    return base;
  const auto found = compiled.find(variant);
  return found == compiled.end() ? std::nullopt : std::optional(found->second);
}

std::optional<std::string> StandbyBundles::problem(const Variant &variant) const {
  const auto found = problems.find(variant);
  return found == problems.end() ? std::nullopt : std::optional(found->second);
}

void StandbyBundles::request(const Variant &variant, const std::string &near, bool urgent) {
  if (find(variant) || problem(variant) || (process && (!urgent || inProgress == variant)))
    return;
  process.reset();
  inProgress = variant;
  std::error_code failure;
  fs::create_directories(directory, failure); // if this fails, the output file cannot be opened
  std::vector<std::string> arguments = {compiler,
                                        "--near",
                                        near,
                                        "--cluster",
                                        base + "/cluster.yaml",
                                        "--weights=reference",
                                        "--quiet",
                                        "-o",
                                        pathOf(variant)};
  if (!variant.excluded.empty()) {
    std::string list;
    for (const std::string &name : variant.excluded) {
      list += list.empty() ? "" : ",";
      list += name;
    }
    arguments.insert(arguments.end(), {"--exclude", list});
  }
  if (!variant.slowdowns.empty())
    arguments.insert(arguments.end(), {"--slowdown", slowdownText(variant.slowdowns)});
  if (compiler.find('/') == std::string::npos)
    arguments.insert(arguments.begin(), "/usr/bin/env");
  Result<std::unique_ptr<BackgroundProcess>> started =
      BackgroundProcess::start(arguments, pathOf(variant) + ".log", urgent);
  if (started.failed())
    problems[variant] = started.message();
  else
    process = std::move(*started);
}

std::optional<Variant> StandbyBundles::poll() {
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
