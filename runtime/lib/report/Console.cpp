#include "zorse/Base/Format.h"
#include "zorse/runtime/Report.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>

#include <sys/ioctl.h>
#include <unistd.h>

using namespace zorse::runtime;

uint64_t zorse::runtime::processBytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.rfind("RssAnon:", 0) == 0) {
      uint64_t kibibytes = 0;
      std::istringstream(line.substr(8)) >> kibibytes;
      return kibibytes << 10;
    }
  return 0;
}

std::string zorse::runtime::bytesText(uint64_t bytes) {
  const char *units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = double(bytes);
  int unit = 0;
  for (; value >= 1024 && unit < 4; ++unit)
    value /= 1024;
  return zorse::format(unit == 0 ? "%.0f %s" : "%.1f %s", value, units[unit]);
}

namespace {

std::string durationText(double seconds) {
  const auto whole = (unsigned long long)(seconds + 0.5);
  return whole >= 3600
             ? zorse::format("%llu:%02llu:%02llu", whole / 3600, whole / 60 % 60, whole % 60)
             : zorse::format("%llu:%02llu", whole / 60, whole % 60);
}

constexpr size_t kBar = 20;

size_t terminalWidth(FILE *out) {
  winsize size = {};
  return ::ioctl(::fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

/// printf prints the sign of a NaN, which has no meaning.
std::string numberText(double value, int digits) {
  return std::isnan(value) ? "nan" : zorse::format("%.*f", digits, value);
}

std::string joined(const std::vector<std::string> &parts) {
  std::string text;
  for (const std::string &part : parts)
    text += (text.empty() ? "" : "  ") + part;
  return text;
}

} // namespace

std::string zorse::runtime::encodeReport(const StepReport &r) {
  char text[256];
  snprintf(text, sizeof text, "%llu %d %d %llu %a %a %a %a %a %a", (unsigned long long)r.step,
           int(r.evaluation), int(r.skipped), (unsigned long long)r.skippedSoFar, r.loss,
           r.gradientNorm, r.learningRate, r.lossScale, r.seconds, r.tokensPerSecond);
  return text;
}

Result<StepReport> zorse::runtime::decodeReport(const std::string &text) {
  StepReport r;
  unsigned long long step = 0, skipped = 0;
  int isEvaluation = 0, isSkipped = 0, end = 0;
  int read = sscanf(text.c_str(), "%20llu %1d %1d %20llu %la %la %la %la %la %la%n", &step,
                    &isEvaluation, &isSkipped, &skipped, &r.loss, &r.gradientNorm, &r.learningRate,
                    &r.lossScale, &r.seconds, &r.tokensPerSecond, &end);
  if (read != 10 || size_t(end) != text.size())
    return userError("a step report of another rank cannot be read: '" + text.substr(0, 80) +
                     "'; start every rank with the same version of Zorse");
  r.step = step;
  r.evaluation = isEvaluation != 0;
  r.skipped = isSkipped != 0;
  r.skippedSoFar = skipped;
  return r;
}

ConsoleReport::ConsoleReport(FILE *out, bool terminal, uint64_t steps, bool tokens)
    : out_(out), terminal_(terminal), tokens_(tokens), steps_(steps) {}

ConsoleReport::~ConsoleReport() {
  if (drawn_)
    fputc('\n', out_);
}

void ConsoleReport::clear() {
  if (drawn_)
    fputs("\r\033[K", out_);
  drawn_ = false;
}

void ConsoleReport::line(const std::string &text) {
  clear();
  fprintf(out_, "%s\n", text.c_str());
  fflush(out_);
}

void ConsoleReport::step(const StepReport &r) {
  clear();
  const char *unit = tokens_ ? "tokens" : "samples";
  std::string step = "step " + std::to_string(r.step) + "/" + std::to_string(steps_);
  if (r.evaluation) {
    fprintf(out_, "%s  eval loss %s  %s %s/s\n", step.c_str(), numberText(r.loss, 4).c_str(),
            numberText(r.tokensPerSecond, 0).c_str(), unit);
    fflush(out_);
    return;
  }
  seconds_ += r.seconds;
  ++counted_;
  std::vector<std::string> parts = {step, "loss " + numberText(r.loss, 4)};
  std::string filled(kBar, '.');
  std::fill_n(filled.begin(), steps_ > 0 ? std::min<uint64_t>(kBar, r.step * kBar / steps_) : 0,
              '#');
  double left = steps_ > r.step ? seconds_ / double(counted_) * double(steps_ - r.step) : 0;
  parts.insert(parts.end(), {"grad norm " + numberText(r.gradientNorm, 4),
                             zorse::format("lr %.3g", r.learningRate),
                             numberText(r.tokensPerSecond, 0) + " " + unit + "/s",
                             "memory " + bytesText(processBytes())});
  if (r.lossScale > 0)
    parts.push_back("loss scale " + numberText(r.lossScale, 0));
  if (r.skipped)
    parts.push_back("update skipped (" + std::to_string(r.skippedSoFar) + " so far)");
  if (!terminal_ || r.skipped) { // lines of skipped updates are not overwritten
    fprintf(out_, "%s\n", joined(parts).c_str());
  } else {
    // Removes fields that do not fit, the least important first.
    size_t width = terminalWidth(out_);
    std::string line = "[" + filled + "] " + joined(parts) + "  " + durationText(left) + " left";
    while (line.size() >= width && parts.size() > 2) {
      parts.pop_back();
      line = "[" + filled + "] " + joined(parts) + "  " + durationText(left) + " left";
    }
    if (line.size() >= width)
      line = joined(parts);
    fputs(line.substr(0, std::max<size_t>(width, 2) - 1).c_str(), out_);
    drawn_ = true;
  }
  if (finite_ && !r.skipped && !std::isfinite(r.loss)) {
    finite_ = false;
    fprintf(out_,
            "%snote: the loss of step %llu is not finite; --on-nonfinite=skip leaves out such "
            "updates\n",
            drawn_ ? "\n" : "", (unsigned long long)r.step);
    drawn_ = false;
  }
  fflush(out_);
}
