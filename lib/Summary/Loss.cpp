// The size of the loss and the text that describes it.
#include "zorse/Summary/Summary.h"
#include "zorse/runtime/Expression.h"

#include <algorithm>
#include <cmath>

using namespace zorse;

const char *zorse::reduceName(bundle::Count::Reduce reduce) {
  return reduce == bundle::Count::SUM   ? "sum"
         : reduce == bundle::Count::MAX ? "max"
         : reduce == bundle::Count::MIN ? "min"
                                        : "";
}

std::optional<bundle::Count::Reduce> zorse::parseReduce(const std::string &name) {
  for (bundle::Count::Reduce reduce : {bundle::Count::SUM, bundle::Count::MAX, bundle::Count::MIN})
    if (name == reduceName(reduce))
      return reduce;
  return std::nullopt;
}

/// The divisor of a factor, without its constant dividend.
static double addendsOf(const Expression &factor, double samples,
                        const std::vector<double> &counts) {
  auto quotient = factor.quotient();
  const double value = quotient && quotient->first.constant()
                           ? quotient->second.evaluate(samples, counts)
                           : 1 / factor.evaluate(samples, counts);
  return std::isfinite(value) ? std::abs(value) : 1;
}

double zorse::firstLossScale(const bundle::ModelSummary &summary, int64_t batch) {
  const auto rows = static_cast<double>(std::max<int64_t>(batch, 1));
  // Counts count elements of these inputs, so they are at most the number of all elements.
  double max = 1;
  for (uint32_t input : summary.count_inputs()) {
    double elements = 1;
    for (int64_t size : summary.inputs(static_cast<int>(input)).shape())
      elements *= static_cast<double>(size);
    max = std::max(max, elements);
  }
  std::vector<double> counts;
  for (const bundle::Count &count : summary.counts())
    counts.push_back(count.reduce() == bundle::Count::SUM ? max * rows : 1);
  double addends = rows;
  for (const bundle::LossTerm &term : summary.loss())
    if (Result<Expression> factor = Expression::parse(term.factor()); !factor.failed())
      addends = std::max(
          addends, addendsOf(*factor, rows * static_cast<double>(samplesPerRow(summary)), counts));
  return std::exp2(4 + std::floor(std::log2(addends)));
}

/// Returns, for example, "0.3 * sum of mse / (20*B)".
static std::string describeTerm(const bundle::LossTerm &term) {
  const std::string sum = "sum of " + term.name();
  const Result<Expression> factor = Expression::parse(term.factor());
  if (factor.failed())
    return "(" + term.factor() + ") * " + sum;
  auto times = [&](const Expression &constant) {
    return constant.constant() == 1 ? sum : constant.print() + " * " + sum;
  };
  if (factor->constant())
    return times(*factor);
  if (auto quotient = factor->quotient(); quotient && quotient->first.constant()) {
    const std::string reciprocal =
        Expression::apply(Expression::Op::Divide, {Expression::number(1), quotient->second})
            .print();
    return times(quotient->first) + " / " + reciprocal.substr(std::string("1/").size());
  }
  return "(" + factor->print() + ") * " + sum;
}

/// Whether the loss is the mean of one number per group of samples.
static bool isMeanOfGroups(const bundle::ModelSummary &summary) {
  if (samplesPerRow(summary) == 1 || summary.loss_size() != 1 || summary.counts_size() > 0)
    return false;
  const Result<Expression> factor = Expression::parse(summary.loss(0).factor());
  return !factor.failed() && factor->evaluate(static_cast<double>(samplesPerRow(summary)), {}) == 1;
}

std::vector<std::string> zorse::describeLoss(const bundle::ModelSummary &summary, int64_t samples) {
  if (isMeanOfGroups(summary)) {
    const std::string group = std::to_string(samplesPerRow(summary));
    return {summary.loss(0).name() + ", the mean over groups of " + group + " samples",
            "groups do not depend on the plan (PyTorch with a local batch of " + group + ")"};
  }
  std::string text;
  for (int k = 0; k < summary.loss_size(); ++k)
    text += (k > 0 ? " + " : "") + describeTerm(summary.loss(k));
  const std::string all = samples > 0 ? std::to_string(samples) : "them";
  text += samples > 0 ? ", over all " + all + " samples of a step" : ", over all samples of a step";
  for (int j = 0; j < summary.counts_size(); ++j) {
    const bundle::Count &count = summary.counts(j);
    text += "; n" + std::to_string(j) + ": " +
            (count.reduce() == bundle::Count::SUM
                 ? ""
                 : reduceName(count.reduce()) + std::string(" of ")) +
            count.meaning();
  }
  if (summary.counts_size() > 0)
    text += ", counted per step";
  return {text, "the same for every division of the batch (PyTorch with one batch of " + all +
                    "; a mean of micro-batches' means is another loss)"};
}
