#include "zorse/runtime/HtmlReport.h"

#include "zorse/Base/Format.h"
#include "zorse/Html/Page.h"
#include "zorse/Summary/Optimizers.h"
#include "zorse/runtime/LearningRate.h"
#include "zorse/runtime/OutputFile.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cctype>
#include <cmath>

using namespace zorse;
using namespace zorse::runtime;
using nlohmann::json;

HtmlReport::Point HtmlReport::join(const Point &a, const Point &b) {
  const double all = double(a.steps + b.steps);
  auto mean = [&](double x, double y) {
    return (x * double(a.steps) + y * double(b.steps)) / all;
  }; // NaN if one is NaN: it must be visible
  return {a.first,
          b.last,
          mean(a.loss, b.loss),
          std::min(a.low, b.low),
          std::max(a.high, b.high),
          mean(a.norm, b.norm),
          mean(a.learningRate, b.learningRate),
          mean(a.rate, b.rate),
          a.steps + b.steps};
}

void HtmlReport::addEarlier(const std::string &metricsFile, uint64_t lastStep) {
  resumedAfter_ = lastStep;
  readMetrics(
      metricsFile, [this](const StepReport &report) { step(report); },
      [this](const MetricsChange &change) { changes_.push_back(change); });
}

void HtmlReport::step(const StepReport &r) {
  if (r.evaluation) {
    evaluations_.emplace_back(r.step, r.loss);
    if (evaluations_.size() > kMaxPoints) // removes every second one; the newest remains
      for (size_t i = 0; i < evaluations_.size(); ++i)
        evaluations_.erase(evaluations_.begin() + std::ptrdiff_t(i));
    return;
  }
  last_ = r;
  if (!first_)
    first_ = r;
  Point point{
      r.step, r.step, r.loss, r.loss, r.loss, r.gradientNorm, r.learningRate, r.tokensPerSecond, 1};
  if (!points_.empty() && points_.back().steps < stepsAPoint_) {
    points_.back() = join(points_.back(), point);
    return;
  }
  if (points_.size() == kMaxPoints) {
    for (size_t i = 0; i < kMaxPoints / 2; ++i)
      points_[i] = join(points_[2 * i], points_[2 * i + 1]);
    points_.resize(kMaxPoints / 2);
    stepsAPoint_ *= 2;
  }
  points_.push_back(point);
}

namespace {

std::string shareBars(const Bundle &bundle, const TimeBreakdown &breakdown) {
  std::string text = "<table class=shares>\n";
  for (size_t d = 0; d < breakdown.devices.size(); ++d) {
    const DeviceTimeBreakdown &s = breakdown.devices[d];
    text += "<tr><td>" + html::escape(bundle.devices[d].name);
    text += format("<td class=track><i style=\"width:%.2f%%;background:var(--f)\"></i><i "
                   "style=\"width:%.2f%%;background:var(--s)\"></i><td class=n>%.1f %%"
                   "<td class=n>%.1f %%<td class=n>%.1f %%</tr>\n",
                   100 * s.computing, 100 * s.exposedCommunication, 100 * s.computing,
                   100 * s.exposedCommunication, 100 * s.idle);
  }
  return text + "</table>\n<div class=legend><span><b "
                "style=\"background:var(--f)\"></b>computing</span><span><b "
                "style=\"background:var(--s)\"></b>transferring data "
                "while nothing computes</span><span><b "
                "style=\"background:var(--line)\"></b>waiting</span></div>\n";
}

std::string number(double value) {
  return std::isnan(value) ? "not finite" : format("%.6g", value);
}

/// For example "1 h 02 min 03 s".
std::string duration(double seconds) {
  const auto whole = (unsigned long long)std::llround(seconds);
  return seconds < 60 ? format("%.1f s", seconds)
         : whole < 3600
             ? format("%llu min %02llu s", whole / 60, whole % 60)
             : format("%llu h %02llu min %02llu s", whole / 3600, whole / 60 % 60, whole % 60);
}

using Rows = std::vector<std::pair<std::string, std::string>>;

std::string table(const Rows &rows) {
  std::string text = "<table class=facts>\n";
  for (const auto &[name, value] : rows)
    text += "<tr><td class=what>" + html::escape(name) + "<td>" + html::escape(value) + "</tr>\n";
  return text + "</table>\n";
}

/// The training options that affect the optimizer and the schedule of the run.
Rows hyperParameters(const Bundle &bundle, const RunSummary &run) {
  const bundle::TrainingOptions &t = run.training;
  const OptimizerInfo &info = infoOf(t.optimizer());
  Rows rows = {
      {"batch",
       std::to_string(bundle.samples()) +
           (bundle.sequence > 0 ? " samples of " + std::to_string(bundle.sequence) + " tokens"
                                : " samples")},
      {"optimizer", info.name},
      {"learning rate", number(t.learning_rate())},
      {"schedule",
       nameOf(t.schedule()) +
           (t.warmup_steps() > 0 ? ", warm-up over " + std::to_string(t.warmup_steps()) + " steps"
                                 : "") +
           (hasEnd(t.schedule())
                ? ", decay until step " +
                      std::to_string(t.total_steps() > 0 ? uint64_t(t.total_steps()) : run.steps) +
                      " to " + number(t.final_ratio()) + " of it"
                : "")}};
  if (info.has(OptimizerInfo::Betas))
    rows.push_back({"betas", number(t.beta1()) + ", " + number(t.beta2())});
  if (info.has(OptimizerInfo::Epsilon))
    rows.push_back({"epsilon", number(t.epsilon())});
  if (info.has(OptimizerInfo::Alpha))
    rows.push_back({"alpha", number(t.alpha())});
  if (info.has(OptimizerInfo::Momentum))
    rows.push_back({"momentum", number(t.momentum()) + (t.nesterov() ? " (Nesterov)" : "")});
  rows.push_back({"weight decay", number(t.weight_decay())});
  rows.push_back({"gradient clipping", t.clip_norm() > 0    ? "norm " + number(t.clip_norm())
                                       : t.clip_value() > 0 ? "value " + number(t.clip_value())
                                                            : "none"});
  rows.push_back({"precision", bundle.precision});
  rows.push_back(
      {"seed, shuffle", std::to_string(t.seed()) + ", " +
                            (run.shuffle ? "seed " + std::to_string(*run.shuffle) : "file order")});
  return rows;
}

std::string joined(const std::vector<std::string> &names) {
  std::string text;
  for (const std::string &name : names) {
    text += text.empty() ? "" : ", ";
    text += name;
  }
  return text;
}

Rows changeRows(const std::vector<MetricsChange> &changes) {
  Rows rows;
  for (const MetricsChange &change : changes) {
    std::string text = joined(change.devices);
    if (!change.left.empty())
      text += "; without " + joined(change.left);
    if (!change.joined.empty())
      text += "; with " + joined(change.joined);
    if (!change.reason.empty())
      text += "; " + change.reason;
    if (change.seconds >= 0)
      text += format("; %.2f s without training", change.seconds);
    rows.emplace_back("after step " + std::to_string(change.step), text);
  }
  return rows;
}

} // namespace

Status HtmlReport::write(const std::string &path, const Bundle &bundle,
                         const TimeBreakdown &breakdown, const RunSummary &run) const {
  json data;
  data["points"] = json::array();
  for (const Point &p : points_)
    data["points"].push_back(
        {p.first, p.last, p.loss, p.low, p.high, p.norm, p.learningRate, p.rate});
  data["evaluations"] = evaluations_;
  data["changes"] = json::array();
  for (const MetricsChange &change : changes_)
    data["changes"].push_back(change.step);
  data["unit"] = bundle.sequence > 0 ? "tokens a second" : "samples a second";

  std::string body = "<p class=lead>";
  if (points_.empty())
    body += "no step";
  else
    body += "steps " + std::to_string(points_.front().first) + " to " +
            std::to_string(points_.back().last);
  body += ", batch " + std::to_string(bundle.batch) +
          (bundle.sequence > 0 ? " x " + std::to_string(bundle.sequence) : "") + ", " +
          bundle.precision + ", " + std::to_string(bundle.devices.size()) + " device" +
          (bundle.devices.size() == 1 ? "" : "s") + "</p>\n";
  Rows outcome;
  if (last_)
    outcome.push_back({"loss", number(last_->loss) + " at step " + std::to_string(last_->step) +
                                   ", " + number(first_->loss) + " at step " +
                                   std::to_string(first_->step)});
  if (!evaluations_.empty())
    outcome.push_back({"loss on held-out data", number(evaluations_.back().second) +
                                                    " after step " +
                                                    std::to_string(evaluations_.back().first)});
  if (last_ && last_->skippedSoFar > 0)
    outcome.push_back({"skipped updates", std::to_string(last_->skippedSoFar)});
  outcome.push_back(
      {resumedAfter_ > 0 ? "duration since step " + std::to_string(resumedAfter_) : "duration",
       duration(run.seconds)});
  body += "<h2>Result</h2>\n" + table(outcome);
  body += "<h2>Loss</h2>\n<label><input type=checkbox id=log> logarithmic</label>\n<canvas "
          "id=loss></canvas>\n";
  body += "<h2>Gradient norm before clipping</h2>\n<canvas id=norm></canvas>\n<h2>Learning "
          "rate</h2>\n<canvas id=lr></canvas>\n<h2>" +
          std::string(bundle.sequence > 0 ? "Tokens" : "Samples") +
          " a second</h2>\n<canvas id=rate></canvas>\n";
  if (!changes_.empty())
    body += "<h2>Changes of devices</h2>\n" + table(changeRows(changes_));
  body += "<h2>Hyper-parameters</h2>\n" + table(hyperParameters(bundle, run));
  if (breakdown.steps > 0)
    body += "<h2>Where the time went</h2>\n" + shareBars(bundle, breakdown) + "<pre class=wrap>" +
            html::escape(describeBreakdown(bundle, breakdown, run.secondsAStep)) + "</pre>\n";
  return writeOutput(path, html::page(bundle.model + ": training", body, data, html::kRunScript));
}
