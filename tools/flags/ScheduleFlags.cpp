#include "ScheduleFlags.h"

#include "Numbers.h"

#include "zorse/Base/Format.h"
#include "zorse/Summary/Optimizers.h"

#include <algorithm>
#include <fstream>
#include <sstream>

using namespace zorse;

using Training = bundle::TrainingOptions;

namespace {

constexpr size_t kMaxPoints = 1 << 20;

/// Names of a protobuf enum on the command line, without the unspecified value.
template <typename Enum>
std::vector<std::string> namesOf(const google::protobuf::EnumDescriptor *of) {
  std::vector<std::string> names;
  for (int i = 0; i < of->value_count(); ++i)
    if (const std::string name = nameOf(static_cast<Enum>(of->value(i)->number()));
        name != "schedule_unspecified")
      names.push_back(name);
  return names;
}

/// The value with this name, which is one of namesOf.
template <typename Enum>
Enum valueOf(const google::protobuf::EnumDescriptor *of, const std::string &name) {
  for (int i = 0; i < of->value_count(); ++i)
    if (nameOf(static_cast<Enum>(of->value(i)->number())) == name)
      return static_cast<Enum>(of->value(i)->number());
  return Enum(0);
}

/// Reads a line "STEP FACTOR" of a schedule file, behind the points so far.
Status addPoint(const std::string &line, Training &training) {
  std::string words = line;
  std::replace(words.begin(), words.end(), ',', ' ');
  std::istringstream in(words);
  int64_t step = 0;
  double factor = 0;
  std::string more;
  if (!(in >> step >> factor) || in >> more || step < 1 || !(factor >= 0) || !std::isfinite(factor))
    return userError("expects a step of at least 1 and a factor of the learning rate, such as '100 "
                     "0.5', got '" +
                     line + "'");
  const int64_t last = training.points().empty() ? 0 : training.points().rbegin()->step();
  if (step <= last)
    return userError("expects ascending steps, got " + std::to_string(step) + " after " +
                     std::to_string(last));
  if (size_t(training.points_size()) == kMaxPoints)
    return userError("has more than " + std::to_string(kMaxPoints) +
                     " points; omit points that lie on a line between two others");
  Training::SchedulePoint &point = *training.add_points();
  point.set_step(step);
  point.set_factor(factor);
  return Status::success();
}

Status readTable(const std::string &path, Training &training) {
  std::ifstream in(path);
  if (!in)
    return userError("--lr-schedule-file: cannot read " + path);
  training.clear_points();
  std::string line;
  for (size_t number = 1; std::getline(in, line); ++number) {
    line.erase(std::find(line.begin(), line.end(), '#'), line.end());
    if (line.find_first_not_of(" \t\r") == std::string::npos)
      continue;
    if (Status status = addPoint(line, training); status.failed())
      return userError(path + ":" + std::to_string(number) + ": " + status.message());
  }
  if (training.points().empty())
    return userError(path + ": has no line with a step and a factor");
  return Status::success();
}

} // namespace

const std::vector<std::string> &ScheduleFlags::names() {
  static const std::vector<std::string> all = {"--lr",
                                               "--lr-scheduler-type",
                                               "--warmup-steps",
                                               "--lr-decay-steps",
                                               "--min-lr-ratio",
                                               "--lr-decay-power",
                                               "--lr-cycles",
                                               "--lr-wsd-decay-steps",
                                               "--lr-wsd-decay-style",
                                               "--lr-schedule-file"};
  return all;
}

void ScheduleFlags::addTo(CLI::App &app, const std::string &group, bool compiled) {
  auto add = [&](const char *name, auto &value, const std::string &text, const char *standard) {
    return app
        .add_option(name, value, text + " (default: " + (compiled ? "as compiled" : standard) + ")")
        ->group(group);
  };
  std::vector<std::string> schedules = namesOf<Training::Schedule>(Training::Schedule_descriptor());
  std::string list;
  schedules.erase(std::remove(schedules.begin(), schedules.end(), "table"), schedules.end());
  for (size_t i = 0; i < schedules.size(); ++i)
    list += (i == 0 ? "" : i + 1 == schedules.size() ? " or " : ", ") + schedules[i];
  add("--lr", learningRate, "learning rate", "3e-4")->check(finiteNumber());
  add("--lr-scheduler-type", schedule, "learning rate schedule: " + list, "constant")
      ->check(CLI::IsMember(schedules));
  add("--warmup-steps", warmup, "steps of linear learning rate warm-up", "0")
      ->check(wholeNumber(INT64_MAX));
  add("--lr-decay-steps", totalSteps, "step at which the decay ends; 0: the last step of the run",
      "0")
      ->check(wholeNumber(INT64_MAX));
  add("--min-lr-ratio", finalRatio, "learning rate at the end of the decay, as a fraction of --lr",
      "0.1")
      ->check(finiteNumber());
  add("--lr-decay-power", decayPower, "power of the polynomial decay", "1")->check(finiteNumber());
  add("--lr-cycles", cycles, "cycles of cosine_with_restarts", "1")->check(wholeNumber(INT32_MAX));
  add("--lr-wsd-decay-steps", wsdDecaySteps,
      "steps of the decay of warmup_stable_decay; 0: a tenth of the steps until its end", "0")
      ->check(wholeNumber(INT64_MAX));
  add("--lr-wsd-decay-style", wsdDecayStyle,
      "decay of warmup_stable_decay: linear, cosine or minus_sqrt", "linear")
      ->check(CLI::IsMember(namesOf<Training::WsdStyle>(Training::WsdStyle_descriptor())));
  app.add_option("--lr-schedule-file", file,
                 "file with lines 'STEP FACTOR': factors of --lr, linear between these steps")
      ->group(group);
}

std::string ScheduleFlags::text() const {
  std::ostringstream text;
  text.precision(17);
  auto add = [&](const char *name, const auto &value) {
    if (value)
      text << " " << name << "=" << *value;
  };
  add("lr", learningRate);
  add("final-ratio", finalRatio);
  add("warmup", warmup);
  add("total-steps", totalSteps);
  add("power", decayPower);
  add("cycles", cycles);
  add("wsd-steps", wsdDecaySteps);
  text << " schedule=" << schedule << " wsd-style=" << wsdDecayStyle;
  return text.str();
}

Status ScheduleFlags::apply(Training &t) const {
  auto set = [&](const auto &value, auto setter) {
    if (value)
      (t.*setter)(*value);
  };
  set(learningRate, &Training::set_learning_rate);
  set(finalRatio, &Training::set_final_ratio);
  set(decayPower, &Training::set_decay_power);
  set(warmup, &Training::set_warmup_steps);
  set(totalSteps, &Training::set_total_steps);
  set(cycles, &Training::set_cycles);
  set(wsdDecaySteps, &Training::set_wsd_decay_steps);
  if (!wsdDecayStyle.empty())
    t.set_wsd_decay_style(
        valueOf<Training::WsdStyle>(Training::WsdStyle_descriptor(), wsdDecayStyle));
  if (!schedule.empty())
    t.set_schedule(valueOf<Training::Schedule>(Training::Schedule_descriptor(), schedule));
  if (!file.empty() && !schedule.empty())
    return userError("--lr-schedule-file: is a schedule itself; remove --lr-scheduler-type");
  if (!file.empty()) {
    t.set_schedule(Training::TABLE);
    if (Status status = readTable(file, t); status.failed())
      return status;
  }
  auto belongs = [&](bool given, const char *option, Training::Schedule to) -> std::string {
    return given && t.schedule() != to
               ? std::string(option) + ": belongs to --lr-scheduler-type=" + nameOf(to) +
                     "; this schedule is " + nameOf(t.schedule())
               : std::string();
  };
  for (const std::string &error :
       {belongs(decayPower.has_value(), "--lr-decay-power", Training::POLYNOMIAL),
        belongs(cycles.has_value(), "--lr-cycles", Training::COSINE_WITH_RESTARTS),
        belongs(wsdDecaySteps.has_value(), "--lr-wsd-decay-steps", Training::WARMUP_STABLE_DECAY),
        belongs(!wsdDecayStyle.empty(), "--lr-wsd-decay-style", Training::WARMUP_STABLE_DECAY)})
    if (!error.empty())
      return userError(error);
  if (cycles && *cycles == 0)
    return userError("--lr-cycles: expects at least 1 cycle, got 0");
  return Status::success();
}
