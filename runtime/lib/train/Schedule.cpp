#include "zorse/runtime/LearningRate.h"

#include <algorithm>
#include <cmath>

using namespace zorse;

using Training = bundle::TrainingOptions;

namespace {

double cosine(double progress) { return 0.5 * (1.0 + std::cos(M_PI * progress)); }

/// The factor of step `step` between the last points before and the first after it.
double between(const Training &options, double step) {
  const auto &points = options.points();
  auto after = std::find_if(points.begin(), points.end(),
                            [&](const auto &point) { return double(point.step()) >= step; });
  if (after == points.end())
    return points.empty() ? 1.0 : points.rbegin()->factor();
  if (after == points.begin())
    return after->factor();
  const auto before = std::prev(after);
  return before->factor() + (after->factor() - before->factor()) * (step - double(before->step())) /
                                double(after->step() - before->step());
}

double stableThenDecay(const Training &options, double step, double total) {
  const double decay = options.wsd_decay_steps() > 0 ? double(options.wsd_decay_steps())
                                                     : std::max(1.0, std::floor(total / 10)),
               progress = std::clamp((step - (total - decay)) / decay, 0.0, 1.0);
  switch (options.wsd_decay_style()) {
  case Training::COSINE_STYLE:
    return cosine(progress);
  case Training::MINUS_SQRT_STYLE:
    return 1.0 - std::sqrt(progress);
  default:
    return 1.0 - progress;
  }
}

/// The rise and fall of OneCycleLR, with its defaults div_factor = 25 and final_div_factor = 1e4.
double oneCycle(double step, double warmup, double total) {
  constexpr double first = 1.0 / 25, last = first / 1e4;
  const double rise = (warmup > 0 ? warmup : 0.3 * total) - 1, at = step - 1,
               fall = std::max(1.0, total - 1 - rise);
  auto anneal = [](double from, double to, double progress) {
    return to + (from - to) * cosine(std::clamp(progress, 0.0, 1.0));
  };
  return at <= rise ? anneal(first, 1.0, rise > 0 ? at / rise : 1.0)
                    : anneal(1.0, last, (at - rise) / fall);
}

/// The factor of a decay to 0. \param progress  from 0 to 1 after the warm-up
double decayed(const Training &options, double step, double progress, double total) {
  switch (options.schedule()) {
  case Training::COSINE:
    return cosine(progress);
  case Training::POLYNOMIAL:
    return std::pow(1.0 - progress, options.decay_power());
  case Training::COSINE_WITH_RESTARTS:
    return progress >= 1.0
               ? 0.0
               : cosine(std::fmod(double(std::max<int64_t>(options.cycles(), 1)) * progress, 1.0));
  case Training::WARMUP_STABLE_DECAY:
    return stableThenDecay(options, step, total);
  default:
    return 0.0;
  }
}

} // namespace

bool zorse::runtime::hasEnd(Training::Schedule schedule) {
  return schedule != Training::SCHEDULE_UNSPECIFIED && schedule != Training::CONSTANT &&
         schedule != Training::INVERSE_SQRT && schedule != Training::TABLE;
}

double zorse::runtime::learningRate(const Training &options, uint64_t step, uint64_t runSteps) {
  const double warmup = double(options.warmup_steps()), at = double(step),
               total =
                   double(options.total_steps() > 0 ? uint64_t(options.total_steps()) : runSteps);
  if (options.schedule() == Training::ONE_CYCLE)
    return options.learning_rate() * oneCycle(at, warmup, total);
  if (at <= warmup)
    return options.learning_rate() * at / warmup;
  if (options.schedule() == Training::TABLE)
    return options.learning_rate() * between(options, at);
  if (!hasEnd(options.schedule()) && options.schedule() != Training::INVERSE_SQRT)
    return options.learning_rate();
  if (options.schedule() == Training::INVERSE_SQRT) {
    const double scale = warmup > 0 ? warmup : 10000;
    return options.learning_rate() / std::sqrt((at + scale - warmup) / scale);
  }
  const double progress = total > warmup ? std::min(1.0, (at - warmup) / (total - warmup)) : 1.0;
  const double rest = options.final_ratio();
  if (options.schedule() == Training::LINEAR)
    return options.learning_rate() * (1.0 - (1.0 - rest) * progress);
  return options.learning_rate() * (rest + (1.0 - rest) * decayed(options, at, progress, total));
}
