// Tests that the chain of unit forwards computes the model and the chain of unit backwards its
// gradient. Compares with the whole @model and with central differences in f64.
#include "Chain.h"
#include "Models.h"

#include "mlir/IR/Verifier.h"

#include <gtest/gtest.h>

#include <cmath>

using namespace zorse;
using namespace zorse::testing;
using autodiff::RecomputePolicy;

namespace {

/// Loss of the whole @model, without units.
double wholeLoss(mlir::func::FuncOp model, const std::vector<Tensor> &arguments,
                 reference::Options options) {
  options.counts.assign(Expression::kMaxCounts, std::nan(""));
  auto results = reference::evaluate(model, arguments, options);
  EXPECT_TRUE(mlir::succeeded(results));
  auto sum = [](const Tensor &t) {
    double s = 0;
    for (double v : t.values)
      s += v;
    return s;
  };
  // Every evaluation gives one more count, because each depends on inputs and on earlier counts.
  std::vector<double> counts;
  for (unsigned i = 0; i < model.getNumResults(); ++i)
    if (auto reduce = model.getResultAttrOfType<mlir::StringAttr>(i, "zorse.reduce")) {
      counts.push_back(reduced((*results)[i].values, reduce.getValue()));
      options.counts[counts.size() - 1] = counts.back();
      results = reference::evaluate(model, arguments, options);
      EXPECT_TRUE(mlir::succeeded(results));
    }
  double loss = 0;
  for (unsigned i = 0; i < model.getNumResults(); ++i)
    if (auto factor = model.getResultAttrOfType<mlir::StringAttr>(i, "zorse.factor"))
      loss += valueOf(factor.str(), options.rows, counts) * sum((*results)[i]);
  return loss;
}

void checkModel(const std::string &text, bool random) {
  auto context = makeContext();
  auto module = mlir::parseSourceString<mlir::ModuleOp>(text, context.get());
  ASSERT_TRUE(module);
  auto function = module->lookupSymbol<mlir::func::FuncOp>("model");
  reference::Options options;
  options.rows = 3, options.seed = 11, options.sampleBase = 2;

  for (RecomputePolicy policy :
       {RecomputePolicy::MinCut, RecomputePolicy::None, RecomputePolicy::Full}) {
    UnitOptions unitOptions;
    unitOptions.saved = policy;
    auto model = buildUnits(*module, unitOptions);
    ASSERT_TRUE(mlir::succeeded(model));
    ASSERT_TRUE(mlir::succeeded(mlir::verify(model->functions->getOperation())));
    const bundle::ModelSummary &summary = model->summary;

    // Arguments of @model by name. Some labels are ignored, with different numbers per sample.
    std::mt19937 rng(3);
    std::map<std::string, Tensor> byName;
    std::vector<Tensor> arguments;
    for (unsigned i = 0; i < function.getNumArguments(); ++i) {
      bool input = bool(function.getArgAttr(i, "zorse.input"));
      mlir::Type type = function.getArgumentTypes()[i];
      Tensor value = randomTensor(type, options.rows, rng, -0.8, 0.8);
      std::string name =
          function.getArgAttrOfType<mlir::StringAttr>(i, input ? "zorse.input" : "zorse.parameter")
              .str();
      if (!mlir::isa<mlir::FloatType>(mlir::getElementTypeOrSelf(type)))
        for (int64_t e = 0; e < value.size(); ++e)
          value.values[e] = name == "labels" && e % 5 == 1 ? -100 : double(rng() % 11);
      byName[name] = value;
      arguments.push_back(value);
    }
    std::vector<Tensor> parameters, inputs;
    for (const bundle::ParameterInfo &parameter : summary.parameters())
      parameters.push_back(byName.at(parameter.name()));
    for (const bundle::GraphInput &input : summary.inputs())
      inputs.push_back(byName.at(input.name()));

    Step step = runStep(*model, parameters, inputs, options, true);
    ASSERT_TRUE(step.ok);
    if (!random) // units renumber random instances
      EXPECT_NEAR(step.loss, wholeLoss(function, arguments, options), 1e-12);

    Step split = runStep(*model, parameters, inputs, options, true, /*split=*/true);
    ASSERT_TRUE(split.ok);
    int units = 0;
    for (const bundle::UnitInfo &unit : summary.units())
      units += unit.splits();
    EXPECT_GT(units, 0);
    for (size_t p = 0; p < parameters.size(); ++p)
      for (int64_t e = 0; e < parameters[p].size(); ++e)
        ASSERT_NEAR(split.gradients[p].values[e], step.gradients[p].values[e],
                    1e-12 * (1 + std::abs(step.gradients[p].values[e])))
            << "parameter " << p << " in two parts";

    for (int p = 0; p < summary.parameters_size(); ++p) {
      if (!summary.parameters(p).trainable())
        continue;
      for (int trial = 0, trials = std::max(1, 120 / summary.parameters_size()); trial < trials;
           ++trial) {
        int64_t e = rng() % parameters[p].size();
        constexpr double h = 1e-5;
        std::vector<Tensor> moved = parameters;
        moved[p].values[e] = parameters[p].values[e] + h;
        double up = runStep(*model, moved, inputs, options, false).loss;
        moved[p].values[e] = parameters[p].values[e] - h;
        double numeric = (up - runStep(*model, moved, inputs, options, false).loss) / (2 * h);
        EXPECT_NEAR(step.gradients[p].values[e], numeric, 1e-7 * (1 + std::abs(numeric)))
            << summary.parameters(p).name() << " element " << e << " policy " << int(policy);
      }
    }
  }
}

TEST(ModelGradient, GptWithTiedEmbeddings) {
  checkModel(withoutDropout(readModel("gpt.mlir")), false);
}
TEST(ModelGradient, GptWithDropout) { checkModel(readModel("gpt.mlir"), true); }
TEST(ModelGradient, LlamaWithGroupedQueriesAndRope) { checkModel(readModel("llama.mlir"), false); }
TEST(ModelGradient, PostNorm) { checkModel(postNormModel(4), false); }
TEST(ModelGradient, SkipsOverManyUnits) { checkModel(skipModel(12), false); }
TEST(ModelGradient, EncoderAndDecoder) { checkModel(encoderDecoderModel(4), false); }
TEST(ModelGradient, AttentionBesideMlp) { checkModel(parallelModel(2), false); }
TEST(ModelGradient, Regression) { checkModel(regressionModel(3), false); }
TEST(ModelGradient, TwoLossTermsOneOnTheMiddle) { checkModel(auxiliaryLossModel(), false); }
TEST(ModelGradient, NumbersOfTheStep) { checkModel(knownModel(), false); }
TEST(ModelGradient, CountsOfCountsAndNumbersOfSamples) { checkModel(levelsModel(), false); }
TEST(ModelGradient, FrozenWeights) { checkModel(frozenModel(), false); }

} // namespace
