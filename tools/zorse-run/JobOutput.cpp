#include "JobOutput.h"

#include "zorse/Base/Format.h"
#include "zorse/runtime/Data.h"

#include <nlohmann/json.hpp>

#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <sstream>

#include <unistd.h>

using namespace zorse;
using namespace zorse::run;
using namespace zorse::runtime;

namespace {

// The first byte of a message is its type.
constexpr char kStep = 's', kTrace = 't', kMemory = 'm', kLine = 'l', kSample = 'x',
               kComputing = 'c';

/// Returns the seconds since the time "since" of a change (ElasticJob.h).
double secondsSince(const std::string &change) {
  const nlohmann::json parsed = nlohmann::json::parse(change, nullptr, /*allow_exceptions=*/false);
  const double now =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  return parsed.is_object() && parsed.contains("since") && parsed["since"].is_number()
             ? now - parsed["since"].get<double>()
             : 0;
}

} // namespace

std::string zorse::run::sayStep(const StepReport &report) { return kStep + encodeReport(report); }

bool zorse::run::isStep(const std::string &said) { return !said.empty() && said[0] == kStep; }

std::string zorse::run::describeGenerated(uint64_t step, const std::vector<int64_t> &ids,
                                          size_t prompt) {
  std::string text = kSample + std::to_string(step) + " " + std::to_string(prompt);
  for (int64_t id : ids)
    text += " " + std::to_string(id);
  return text;
}

std::vector<std::string> zorse::run::sayTrace(const std::vector<TraceEvent> &events) {
  constexpr size_t kEvents = 1 << 14; // per message: half a megabyte
  std::vector<std::string> messages;
  for (size_t begin = 0; begin < events.size(); begin += kEvents) {
    size_t count = std::min(kEvents, events.size() - begin);
    std::string &message = messages.emplace_back(1 + count * sizeof(TraceEvent), kTrace);
    std::memcpy(message.data() + 1, events.data() + begin, count * sizeof(TraceEvent));
  }
  return messages;
}

std::string zorse::run::sayComputing(uint32_t device, uint64_t step, uint64_t steps,
                                     double seconds) {
  char text[96];
  snprintf(text, sizeof text, "%c%" PRIu32 " %" PRIu64 " %" PRIu64 " %.9g", kComputing, device,
           step, steps, seconds);
  return text;
}

std::string zorse::run::sayMemory(uint32_t device, const Executor::MemoryUse &use) {
  char text[96];
  snprintf(text, sizeof text, "%c%" PRIu32 " %" PRIu64 " %" PRIu64, kMemory, device, use.planned,
           use.touched);
  return text;
}

JobOutput::JobOutput(const Options &options, const Bundle &bundle)
    : options_(options), bundle_(bundle), finder_(plannedComputing(bundle)),
      uses_(bundle.programs.size()), screen_([this](const std::string &said) { show(said); }),
      files_([this](const std::string &said) { understand(said); }) {
  if (!options.elastic)
    return;
  slow_.times = readSlowDevices(slowDevicesFile(options)).times;
  std::vector<double> times;
  times.reserve(bundle.devices.size());
  for (const BundleDevice &device : bundle.devices) {
    const auto found = slow_.times.find(device.name);
    times.push_back(found == slow_.times.end() ? 1 : found->second);
  }
  finder_ = SlowDeviceFinder(plannedComputing(bundle), times);
}

Status JobOutput::begin(uint64_t lastStep) {
  if (!options_.metrics.empty()) {
    Result<std::unique_ptr<MetricsFile>> opened = MetricsFile::open(options_.metrics, lastStep);
    if (opened.failed())
      return opened.error();
    metrics_ = std::move(*opened);
    if (const char *change = std::getenv("ZORSE_CHANGE"))
      metrics_->changed(lastStep, change, secondsSince(change));
  }
  if (!options_.page.empty() && !options_.metrics.empty() && lastStep > 0)
    report_.addEarlier(options_.metrics, lastStep);
  if (!options_.tensorboard.empty()) {
    Result<std::unique_ptr<TensorBoardFile>> opened =
        TensorBoardFile::open(options_.tensorboard, lastStep, bundle_.sequence > 0);
    if (opened.failed())
      return opened.error();
    tensorBoard_ = std::move(*opened);
  }
  if (!options_.quiet && !options_.evaluate) // an evaluation prints its only line at the end
    console_ = std::make_unique<ConsoleReport>(stdout, ::isatty(STDOUT_FILENO), options_.steps,
                                               bundle_.sequence > 0);
  begun_ = std::chrono::steady_clock::now();
  reported_->add(lastStep);
  screen_.start();
  files_.start();
  return Status::success();
}

Status JobOutput::writePage(const TimeBreakdown &breakdown,
                            const bundle::TrainingOptions &training) const {
  RunSummary run;
  run.training = training;
  run.shuffle = options_.shuffle;
  run.steps = options_.steps;
  run.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun_).count();
  run.secondsAStep = secondsAStep();
  return report_.write(options_.page, bundle_, breakdown, run);
}

void JobOutput::line(const std::string &text) { take(kLine + text); }

void JobOutput::drain() {
  files_.drain();
  screen_.drain();
  console_.reset();
}

void JobOutput::takeGenerated(const std::string &numbers) {
  std::istringstream in(numbers);
  uint64_t step = 0;
  size_t prompt = 0;
  std::vector<int64_t> ids;
  in >> step >> prompt;
  for (int64_t id; in >> id;)
    ids.push_back(id);
  if (metrics_)
    metrics_->generated(step, ids, prompt);
  // If tokens are bytes, they are printed as text.
  const bool bytes = bytesAreTokens(bundle_.summary.logits().vocabulary());
  std::string text = "step " + std::to_string(step) + "  sample: ";
  for (size_t i = 0; i < ids.size(); ++i) {
    if (i == prompt)
      text += " | ";
    char shown[8];
    if (!bytes)
      text += (i > 0 && i != prompt ? " " : "") + std::to_string(ids[i]);
    else if (ids[i] >= 256) // begin-of-text or end-of-text token
      text += "<" + std::to_string(ids[i]) + ">";
    else if (ids[i] >= 32 && ids[i] < 127)
      text += char(ids[i]);
    else if (std::snprintf(shown, sizeof shown, ids[i] == 10 ? "\\n" : "\\x%02x",
                           unsigned(ids[i] & 255)) > 0)
      text += shown;
  }
  if (!options_.quiet)
    screen_.add(kLine + text);
}

/// Adds a step to what the driver of an elastic job knows.
void JobOutput::tellDriver(const StepReport &report) {
  constexpr size_t kRecent = 10;
  recentSeconds_.push_back(report.seconds);
  if (recentSeconds_.size() > kRecent)
    recentSeconds_.pop_front();
  slow_.step = report.step;
  slow_.stepSeconds = std::accumulate(recentSeconds_.begin(), recentSeconds_.end(), 0.0) /
                      double(recentSeconds_.size());
  if (slow_.startSeconds > 0)
    return;
  slow_.startSeconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - created_).count();
  writeSlow();
}

void JobOutput::writeSlow() {
  if (!options_.elastic)
    return;
  if (Status status = writeSlowDevices(slowDevicesFile(options_), slow_); status.failed())
    screen_.add(kLine + ("warning: slow devices keep their shares: " + status.message()));
}

void JobOutput::showSlow(const SlowDeviceFinder::Finding &finding) {
  const std::string &name = bundle_.devices[finding.device].name;
  slow_.times.erase(name);
  if (!finding.recovered)
    slow_.times[name] = finding.times;
  writeSlow();
  if (options_.quiet)
    return;
  std::string text = "device " + name;
  if (bundle_.topology.nodes_size() > 0)
    text +=
        " on node " +
        bundle_.topology.nodes(int(bundle_.topology.node_of_device(int(finding.device)))).name();
  const std::string since = std::to_string(finding.since);
  if (finding.recovered)
    text = "note: " + text + " computes as fast as before again since step " + since;
  else
    text = "warning: " + text + " is slow: since step " + since + " it computes " +
           format("%.1f", finding.earlier) + " times its time at the start" +
           (finding.planned > 0 ? ", " + format("%.1f", finding.planned) + " times its planned time"
                                : "") +
           ", and the other devices do not. Look there for another process, a thermal limit or a "
           "lower clock";
  screen_.add(kLine + text);
}

void JobOutput::takeStep(const std::string &said) {
  Result<StepReport> report = decodeReport(said.substr(1));
  if (report.failed()) {
    fprintf(stderr, "warning: %s\n", report.message().c_str());
    return;
  }
  if (metrics_)
    metrics_->step(*report);
  if (tensorBoard_)
    tensorBoard_->step(*report);
  report_.step(*report);
  if (report->evaluation)
    evaluated_ = *report;
  else {
    if (steps_++ > 0)
      secondsOfSteps_ += report->seconds;
    tellDriver(*report);
    reported_->add(report->step);
  }
  screen_.add(said);
}

void JobOutput::takeTrace(const std::string &said) {
  const size_t count = (said.size() - 1) / sizeof(TraceEvent), before = trace_.size();
  trace_.resize(before + count);
  std::memcpy(trace_.data() + before, said.data() + 1, count * sizeof(TraceEvent));
  for (size_t i = before; i < trace_.size(); ++i)
    if (trace_[i].device >= bundle_.programs.size() ||
        trace_[i].instruction >= uint32_t(bundle_.programs[trace_[i].device].instructions_size()))
      trace_[i--] = trace_.back(),
      trace_.pop_back(); // ignore events without an instruction, which another rank sent by mistake
}

/// The thread of the console.
void JobOutput::show(const std::string &said) {
  if (said[0] == kStep) {
    if (Result<StepReport> report = decodeReport(said.substr(1)); console_ && !report.failed())
      console_->step(*report);
  } else if (console_) {
    console_->line(said.substr(1));
  } else {
    fprintf(stderr, "%s\n", said.c_str() + 1);
  }
}

void JobOutput::understand(const std::string &said) {
  if (said.empty())
    return;
  switch (said[0]) {
  case kStep:
    return takeStep(said);
  case kTrace:
    return takeTrace(said);
  case kMemory: {
    uint32_t device = 0;
    Executor::MemoryUse use;
    if (sscanf(said.c_str() + 1, "%" SCNu32 " %" SCNu64 " %" SCNu64, &device, &use.planned,
               &use.touched) == 3 &&
        device < uses_.size())
      uses_[device] = use;
    return;
  }
  case kComputing: {
    uint32_t device = 0;
    uint64_t step = 0, steps = 0;
    double seconds = 0;
    if (sscanf(said.c_str() + 1, "%" SCNu32 " %" SCNu64 " %" SCNu64 " %lf", &device, &step, &steps,
               &seconds) == 4)
      if (const auto finding = finder_.add(device, step, steps, seconds))
        showSlow(*finding);
    return;
  }
  case kSample:
    return takeGenerated(said.substr(1));
  case kLine:
    return screen_.add(said);
  default:
    return;
  }
}
