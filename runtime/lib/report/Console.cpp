#include "zorse/runtime/Report.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>

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
  char text[32];
  snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.1f %s", value, units[unit]);
  return text;
}

namespace {

std::string durationText(double seconds) {
  char text[32];
  auto whole = uint64_t(seconds + 0.5);
  if (whole >= 3600)
    snprintf(text, sizeof text, "%llu:%02llu:%02llu", (unsigned long long)whole / 3600, (unsigned long long)whole / 60 % 60, (unsigned long long)whole % 60);
  else
    snprintf(text, sizeof text, "%llu:%02llu", (unsigned long long)whole / 60, (unsigned long long)whole % 60);
  return text;
}

} // namespace

ConsoleReport::ConsoleReport(FILE *out, bool terminal, uint64_t steps) : out_(out), terminal_(terminal), steps_(steps) {}

ConsoleReport::~ConsoleReport() {
  if (drawn_)
    fputc('\n', out_);
}

void ConsoleReport::clear() {
  if (drawn_)
    fputs("\r\033[K", out_);
  drawn_ = false;
}

void ConsoleReport::step(const StepReport &r) {
  clear();
  if (r.evaluation) {
    fprintf(out_, "step %llu/%llu  eval loss %.4f  %.0f tokens/s\n", (unsigned long long)r.step, (unsigned long long)steps_, r.loss, r.tokensPerSecond);
    fflush(out_);
    return;
  }
  seconds_ += r.seconds;
  ++counted_;
  char line[256];
  snprintf(line, sizeof line, "step %llu/%llu  loss %.4f  grad norm %.4f  lr %.3g  %.0f tokens/s  memory %s%s", (unsigned long long)r.step,
           (unsigned long long)steps_, r.loss, r.gradientNorm, r.learningRate, r.tokensPerSecond, bytesText(processBytes()).c_str(),
           r.skipped ? "  update skipped" : "");
  if (!terminal_) {
    fprintf(out_, "%s\n", line);
  } else if (r.skipped) {
    fprintf(out_, "%s\n", line); // stays to be seen.
  } else {
    constexpr int kWidth = 20;
    int filled = steps_ > 0 ? int(std::min<uint64_t>(kWidth, r.step * kWidth / steps_)) : 0;
    std::string bar(filled, '#');
    bar.resize(kWidth, '.');
    double left = steps_ > r.step ? seconds_ / double(counted_) * double(steps_ - r.step) : 0;
    fprintf(out_, "[%s] %s  %s left", bar.c_str(), line, durationText(left).c_str());
    drawn_ = true;
  }
  fflush(out_);
}
