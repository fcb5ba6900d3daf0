#include "zorse/runtime/Report.h"

#include "zorse/runtime/OutputFile.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <vector>

#include <sys/stat.h>
#include <unistd.h>

using namespace zorse;
using namespace zorse::runtime;
using nlohmann::ordered_json;

namespace {

/// Bytes of the complete lines of steps up to `lastStep`, before the first line that is later or is
/// not a metrics line. Returns 0 for files that are not regular.
off_t linesUntil(const std::string &path, uint64_t lastStep) {
  struct stat there = {};
  if (::stat(path.c_str(), &there) != 0 || !S_ISREG(there.st_mode))
    return 0; // reading a pipe would wait for lines of this process
  std::ifstream file(path, std::ios::binary);
  off_t bytes = 0;
  for (std::string line; std::getline(file, line) && !file.eof(); bytes += off_t(line.size()) + 1) {
    ordered_json parsed = ordered_json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!parsed.is_object() || !parsed.contains("step") || !parsed["step"].is_number_unsigned() ||
        parsed["step"].get<uint64_t>() > lastStep)
      break;
  }
  return bytes;
}

double numberOf(const ordered_json &line, const char *key) {
  const auto found = line.find(key);
  return found != line.end() && found->is_number() ? found->get<double>()
                                                   : std::numeric_limits<double>::quiet_NaN();
}

std::vector<std::string> textsOf(const ordered_json &line, const char *key) {
  std::vector<std::string> out;
  if (const auto found = line.find(key); found != line.end() && found->is_array())
    for (const ordered_json &text : *found)
      if (text.is_string())
        out.push_back(text.get<std::string>());
  return out;
}

/// Creates a file with the first `bytes` of the file at `path`, if it exists, and replaces that
/// file. Returns null if this is not possible: the file is not regular, or the directory is not
/// writable.
FILE *replaceFile(const std::string &path, off_t bytes) {
  struct stat old = {};
  bool there = ::stat(path.c_str(), &old) == 0;
  if ((there && !S_ISREG(old.st_mode)) || path.rfind("/dev/", 0) == 0 ||
      path.rfind("/proc/", 0) == 0) // the target of /dev/stdout must not be replaced
    return nullptr;
  std::error_code failed;
  std::string target = there ? std::filesystem::canonical(path, failed).string() : path; // a link
                                                                                         // is kept
  if (failed)
    return nullptr;
  std::string draft;
  FILE *file = createDraft(target, draft);
  if (!file)
    return nullptr;
  bool good = !there || ::fchmod(::fileno(file), old.st_mode & 07777) == 0;
  std::ifstream from(bytes > 0 ? path : "", std::ios::binary);
  std::vector<char> piece(1 << 16);
  for (off_t left = bytes; good && left > 0;) {
    from.read(piece.data(), std::streamsize(std::min<off_t>(left, off_t(piece.size()))));
    size_t got = size_t(from.gcount());
    good = got > 0 && std::fwrite(piece.data(), 1, got, file) == got;
    left -= off_t(got);
  }
  good = std::fflush(file) == 0 && good && std::rename(draft.c_str(), target.c_str()) == 0;
  if (good)
    return file;
  std::fclose(file);
  std::remove(draft.c_str());
  return nullptr;
}

} // namespace

// A stopped process of an earlier start may resume and write its current line. It writes to the
// file that it has open, which must therefore be another file than this one.
Result<std::unique_ptr<MetricsFile>> MetricsFile::open(const std::string &path, uint64_t lastStep) {
  if (FILE *own = replaceFile(path, lastStep > 0 ? linesUntil(path, lastStep) : 0))
    return std::unique_ptr<MetricsFile>(new MetricsFile(path, own));
  FILE *file = std::fopen(path.c_str(), lastStep > 0 ? "a" : "w");
  if (file && lastStep > 0 && ::truncate(path.c_str(), linesUntil(path, lastStep)) != 0 &&
      errno != EINVAL) { // EINVAL: not a regular file
    std::fclose(file);
    file = nullptr;
  }
  if (!file)
    return userError(path + ": cannot be written: " + std::strerror(errno));
  return std::unique_ptr<MetricsFile>(new MetricsFile(path, file));
}

void zorse::runtime::readMetrics(const std::string &path,
                                 const std::function<void(const StepReport &)> &step,
                                 const std::function<void(const MetricsChange &)> &change) {
  std::ifstream file(path, std::ios::binary);
  for (std::string text; std::getline(file, text) && !file.eof();) {
    const ordered_json line = ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
    const double number = line.is_object() ? numberOf(line, "step") : -1;
    if (!(number >= 0))
      return;
    if (line.contains("devices")) {
      MetricsChange changed{uint64_t(number), textsOf(line, "devices"), textsOf(line, "left"),
                            textsOf(line, "joined")};
      if (const auto reason = line.find("reason"); reason != line.end() && reason->is_string())
        changed.reason = reason->get<std::string>();
      changed.seconds = numberOf(line, "pause_seconds");
      change(changed);
    } else if (!line.contains("generated")) {
      StepReport report;
      report.step = uint64_t(number);
      report.evaluation = line.contains("eval_loss");
      report.loss = numberOf(line, report.evaluation ? "eval_loss" : "loss");
      report.gradientNorm = numberOf(line, "grad_norm");
      report.learningRate = numberOf(line, "lr");
      report.tokensPerSecond = numberOf(line, "tokens_per_second");
      report.seconds = numberOf(line, "seconds");
      step(report);
    }
  }
}

MetricsFile::~MetricsFile() {
  if (file_)
    std::fclose(file_);
}

void MetricsFile::step(const StepReport &r) {
  ordered_json line;
  line["step"] = r.step;
  line[r.evaluation ? "eval_loss" : "loss"] = r.loss; // JSON has no NaN: written as null
  if (!r.evaluation) {
    line["grad_norm"] = r.gradientNorm;
    line["lr"] = r.learningRate;
    if (r.lossScale > 0)
      line["loss_scale"] = r.lossScale;
    line["skipped"] = r.skipped;
    line["memory_bytes"] = processBytes();
  }
  line["tokens_per_second"] = r.tokensPerSecond;
  line["seconds"] = r.seconds;
  write(line.dump());
}

void MetricsFile::generated(uint64_t step, const std::vector<int64_t> &ids, size_t prompt) {
  const auto end = ids.begin() + std::ptrdiff_t(std::min(prompt, ids.size()));
  ordered_json line = {{"step", step},
                       {"prompt", std::vector<int64_t>(ids.begin(), end)},
                       {"generated", std::vector<int64_t>(end, ids.end())}};
  write(line.dump());
}

void MetricsFile::changed(uint64_t step, const std::string &change, double seconds) {
  const ordered_json given = ordered_json::parse(change, nullptr, /*allow_exceptions=*/false);
  ordered_json line = {{"step", step}};
  for (const char *field : {"devices", "left", "joined", "slowdowns", "reason"})
    line[field] = given.is_object() && given.contains(field) ? given[field] : ordered_json();
  line["pause_seconds"] = seconds;
  write(line.dump());
}

void MetricsFile::write(const std::string &line) {
  std::string text = line + "\n";
  bool good = std::fwrite(text.data(), 1, text.size(), file_) == text.size();
  good = std::fflush(file_) == 0 && good;
  if (!good && cause_ == 0)
    cause_ = errno; // the run continues; close() reports the error
}

Status MetricsFile::close() {
  bool good = cause_ == 0;
  if (std::fclose(file_) != 0 && good) {
    good = false;
    cause_ = errno;
  }
  file_ = nullptr;
  return good ? Status::success()
              : Status(userError(path_ + ": cannot be written: " + std::strerror(cause_)));
}

uint64_t zorse::runtime::reserveBytes(const Bundle &bundle) {
  uint64_t reserve = 16 << 20, batch = 0;
  for (const bundle::GraphInput &input : bundle.summary.inputs())
    batch += input.bytes_per_row() * bundle.batch;
  for (const BundleDevice &device : bundle.devices)
    reserve += uint64_t(device.threads) * (24 << 20) +
               (device.kind == "cuda" ? Executor::kStepsAhead * batch : 0); // HostStaging.h
  return reserve + Executor::kStepsAhead * batch;
}

Status zorse::runtime::writeMemoryReport(const std::string &path, const Bundle &bundle,
                                         const std::vector<Executor::MemoryUse> &uses,
                                         uint64_t emptyExecutorBytes) {
  ordered_json report;
  report["devices"] = ordered_json::array();
  for (size_t i = 0; i < uses.size(); ++i)
    report["devices"].push_back({{"name", bundle.devices[i].name},
                                 {"planned_bytes", uses[i].planned},
                                 {"touched_bytes", uses[i].touched}});
  report["process_bytes"] = processBytes();
  report["empty_executor_bytes"] = emptyExecutorBytes;
  report["reserve_bytes"] = reserveBytes(bundle);
  return writeOutput(path, report.dump(1) + "\n");
}
