#include "zorse/runtime/RunPage.h"

#include "zorse/Pages/Page.h"
#include "zorse/runtime/OutputFile.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>

using namespace zorse;
using namespace zorse::runtime;
using nlohmann::json;

RunPage::Point RunPage::join(const Point &a, const Point &b) {
  const double all = double(a.steps + b.steps);
  auto mean = [&](double x, double y) { return (x * double(a.steps) + y * double(b.steps)) / all; }; // NaN where one is: it is to be seen
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

void RunPage::step(const StepReport &r) {
  if (r.evaluation) {
    evaluations_.emplace_back(r.step, r.loss);
    if (evaluations_.size() > kMostPoints) // every other one; the newest stays
      for (size_t i = 0; i < evaluations_.size(); ++i)
        evaluations_.erase(evaluations_.begin() + std::ptrdiff_t(i));
    return;
  }
  Point point{r.step, r.step, r.loss, r.loss, r.loss, r.gradientNorm, r.learningRate, r.tokensPerSecond, 1};
  if (!points_.empty() && points_.back().steps < stepsAPoint_) {
    points_.back() = join(points_.back(), point);
    return;
  }
  if (points_.size() == kMostPoints) {
    for (size_t i = 0; i < kMostPoints / 2; ++i)
      points_[i] = join(points_[2 * i], points_[2 * i + 1]);
    points_.resize(kMostPoints / 2);
    stepsAPoint_ *= 2;
  }
  points_.push_back(point);
}

namespace {

std::string shareBars(const Bundle &bundle, const TimeShares &shares) {
  std::string text = "<table class=shares>\n";
  for (size_t d = 0; d < shares.devices.size(); ++d) {
    const DeviceShares &s = shares.devices[d];
    char row[512];
    std::snprintf(
        row, sizeof row,
        "<td class=track><i style=\"width:%.2f%%;background:var(--f)\"></i><i style=\"width:%.2f%%;background:var(--s)\"></i><td class=n>%.1f %%"
        "<td class=n>%.1f %%<td class=n>%.1f %%</tr>\n",
        100 * s.computing, 100 * s.moving, 100 * s.computing, 100 * s.moving, 100 * s.waiting);
    text += "<tr><td>" + pages::escape(bundle.devices[d].name) + row;
  }
  return text + "</table>\n<div class=legend><span><b style=\"background:var(--f)\"></b>computing</span><span><b "
                "style=\"background:var(--s)\"></b>moving bytes "
                "while nothing computes</span><span><b style=\"background:var(--line)\"></b>waiting</span></div>\n";
}

} // namespace

Status RunPage::write(const std::string &path, const Bundle &bundle, const TimeShares &shares, double seconds) const {
  json data;
  data["points"] = json::array();
  for (const Point &p : points_)
    data["points"].push_back({p.first, p.last, p.loss, p.low, p.high, p.norm, p.learningRate, p.rate});
  data["evaluations"] = evaluations_;
  data["unit"] = bundle.sequence > 0 ? "tokens a second" : "samples a second";

  std::string body = "<p class=lead>";
  if (points_.empty())
    body += "no step";
  else
    body += "steps " + std::to_string(points_.front().first) + " to " + std::to_string(points_.back().last);
  body += ", batch " + std::to_string(bundle.batch) + (bundle.sequence > 0 ? " x " + std::to_string(bundle.sequence) : "") + ", " + bundle.precision +
          ", " + std::to_string(bundle.devices.size()) + " device" + (bundle.devices.size() == 1 ? "" : "s") + "</p>\n";
  body += "<h2>Loss</h2>\n<label><input type=checkbox id=log> logarithmic</label>\n<canvas id=loss></canvas>\n";
  body += "<h2>Gradient norm before clipping</h2>\n<canvas id=norm></canvas>\n<h2>Learning rate</h2>\n<canvas id=lr></canvas>\n<h2>" +
          std::string(bundle.sequence > 0 ? "Tokens" : "Samples") + " a second</h2>\n<canvas id=rate></canvas>\n";
  if (shares.steps > 0)
    body +=
        "<h2>Where the time went</h2>\n" + shareBars(bundle, shares) + "<pre>" + pages::escape(describeShares(bundle, shares, seconds)) + "</pre>\n";
  return writeOutput(path, pages::page(bundle.model + ": training", body, data, pages::kRunScript));
}
