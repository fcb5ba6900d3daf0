// Tests cuts, classes, blocks, groups and the summary.
#include "Chain.h"
#include "Models.h"

#include "../../../lib/Units/Blocks.h"

#include "zorse/Base/MaxFlow.h"
#include "zorse/Summary/Optimizers.h"

#include "mlir/IR/Diagnostics.h"

#include "llvm/Support/raw_ostream.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

using namespace zorse;
using namespace zorse::testing;

namespace {

struct Built {
  std::unique_ptr<mlir::MLIRContext> context;
  mlir::OwningOpRef<mlir::ModuleOp> module;
  std::vector<std::string> messages;
  std::optional<UnitModel> model;

  const bundle::ModelSummary &summary() const { return model->summary; }
  std::vector<std::string> names() const {
    std::vector<std::string> result;
    for (const bundle::UnitInfo &unit : summary().units())
      result.push_back(unit.name());
    return result;
  }
};

Built build(const std::string &text, const UnitOptions &options = {}) {
  Built built;
  built.context = makeContext();
  mlir::ScopedDiagnosticHandler handler(built.context.get(), [&](mlir::Diagnostic &d) {
    built.messages.push_back(d.str());
    return mlir::success();
  });
  built.module = mlir::parseSourceString<mlir::ModuleOp>(text, built.context.get());
  EXPECT_TRUE(built.module);
  if (auto model = buildUnits(*built.module, options); mlir::succeeded(model))
    built.model = std::move(*model);
  return built;
}

std::string replaced(std::string text, const std::string &from, const std::string &to) {
  size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(Units, PostNormStartsItsBlocksWithTheNorm) {
  Built b = build(postNormModel(4));
  ASSERT_TRUE(b.model);
  EXPECT_EQ(b.summary().classes_size(), 4); // embedding, attention, mlp, head
  EXPECT_EQ(b.summary().blocks_count(), 4u);
  EXPECT_EQ(b.names().front(), "embedding");
  EXPECT_EQ(b.names()[1], "block 0 attention");
  EXPECT_EQ(b.names().back(), "head");
}

TEST(Units, SkipsAreCarriedAcrossHalfBlocks) {
  Built b = build(skipModel(12));
  ASSERT_TRUE(b.model);
  EXPECT_EQ(b.summary().units_size(), 26);
  EXPECT_EQ(b.summary().blocks_count(), 12u);
  int carried = 0;
  for (const bundle::ValueInfo &value : b.summary().values()) {
    EXPECT_GT(value.users(0), value.producer());
    carried += value.users_size() == 2;
  }
  EXPECT_EQ(carried, 5);
}

TEST(Units, EncodersComeBeforeTheirDecoders) {
  Built b = build(encoderDecoderModel(6));
  ASSERT_TRUE(b.model);
  // The encoder's output is made with the first cross-attention and passed on to the other five.
  // From there, every part of a block is a separate unit.
  int widest = 0;
  for (const bundle::ValueInfo &value : b.summary().values())
    widest = std::max(widest, value.users_size());
  EXPECT_EQ(widest, 5);
  EXPECT_EQ(b.summary().units(0).inputs_size(), 1);
  EXPECT_EQ(b.summary().inputs(b.summary().units(0).inputs(0)).name(), "input_ids");
  EXPECT_GE(b.summary().units_size(), 1 + 12 + 15 + 1);
}

TEST(Units, ParallelBlocksAndPerceptrons) {
  Built parallel = build(parallelModel(4));
  EXPECT_EQ(parallel.names(), (std::vector<std::string>{"embedding", "block 0", "block 1",
                                                        "block 2", "block 3", "head"}));
  Built regression = build(regressionModel(5));
  EXPECT_EQ(regression.names(),
            (std::vector<std::string>{"block 0", "block 1", "block 2", "block 3", "head"}));
}

TEST(Units, AllLossTermsBelongToTheHead) {
  Built b = build(auxiliaryLossModel());
  ASSERT_TRUE(b.model);
  const auto &units = b.summary().units();
  for (int u = 0; u + 1 < units.size(); ++u)
    EXPECT_EQ(units[u].loss_terms_size(), 0);
  EXPECT_EQ(units[units.size() - 1].loss_terms_size(), 2);
  EXPECT_EQ(b.summary().loss(0).factor(), "0.125/(3*B)");
}

TEST(Units, RandomInstancesOfUnitsDoNotOverlap) {
  Built b = build(readModel("gpt.mlir"));
  ASSERT_TRUE(b.model);
  std::vector<uint64_t> bases;
  for (const bundle::UnitInfo &unit : b.summary().units())
    bases.push_back(unit.rng_id_base());
  EXPECT_EQ(bases, (std::vector<uint64_t>{0, 1, 3, 4, 6, 7, 9, 10}));
}

TEST(Units, NamesAndTrainabilityDecideNothingAndMuch) {
  // Other names and random instances give the same classes. A frozen bias gives another class.
  std::string text = readModel("gpt.mlir");
  Built renamed = build(std::regex_replace(text, std::regex("\"h\\.1\\."), "\"other."));
  ASSERT_TRUE(renamed.model);
  EXPECT_EQ(renamed.summary().classes_size(), 4);
  Built frozen = build(replaced(text, "\"h.1.ln_1.bias\", zorse.trainable = true",
                                "\"h.1.ln_1.bias\", zorse.trainable = false"));
  ASSERT_TRUE(frozen.model);
  EXPECT_EQ(frozen.summary().classes_size(), 5);
  EXPECT_EQ(frozen.names()[3], "block 1 attention"); // still recognized as a block
}

TEST(Units, EpsilonAndScaleDecideTheClass) {
  Built b = build(replaced(readModel("llama.mlir"), "scale = 0.7", "scale = 0.6"));
  ASSERT_TRUE(b.model);
  EXPECT_EQ(b.summary().classes_size(), 5);
}

TEST(Units, SummariesAreEqualForEqualModels) {
  Built a = build(readModel("gpt.mlir")), b = build(readModel("gpt.mlir")),
        c = build(replaced(readModel("gpt.mlir"), "probability = 0.1", "probability = 0.2"));
  EXPECT_EQ(a.summary().SerializeAsString(), b.summary().SerializeAsString());
  EXPECT_NE(a.summary().content_hash(), c.summary().content_hash());
}

TEST(Units, SavedBytesFollowThePackingRule) {
  Built b = build(readModel("llama.mlir"));
  ASSERT_TRUE(b.model);
  for (const bundle::UnitInfo &unit : b.summary().units()) {
    mlir::func::FuncOp forward =
        functionOp(*b.model, classOf(b.summary(), unit), bundle::UnitFunction::FORWARD);
    int64_t bytes = 0, index = 0;
    for (unsigned i = 0; i < forward.getNumResults(); ++i)
      if (isOfKind(attributeOfResult(forward, i), ArgumentKind::Saved)) {
        EXPECT_EQ(attributeOfResult(forward, i).getIndex(), index++);
        auto type = mlir::cast<mlir::RankedTensorType>(forward.getResultTypes()[i]);
        EXPECT_TRUE(carriesSamples(type));
        bytes += (elementsPerRow(type) * 8 + 63) / 64 * 64;
      }
    EXPECT_EQ(classOf(b.summary(), unit).saved_bytes().per_row(), bytes);
    EXPECT_EQ(classOf(b.summary(), unit).saved_bytes().fixed(), 0);
  }
}

TEST(Units, EveryTrainedParameterAndValueGetsItsGradient) {
  for (const std::string &text :
       {readModel("gpt.mlir"), skipModel(12), auxiliaryLossModel(), frozenModel()}) {
    Built b = build(text);
    ASSERT_TRUE(b.model);
    for (const bundle::UnitInfo &unit : b.summary().units()) {
      mlir::func::FuncOp backward =
          functionOp(*b.model, classOf(b.summary(), unit), bundle::UnitFunction::BACKWARD);
      std::multiset<std::pair<std::string, int64_t>> found, expected;
      for (unsigned i = 0; i < backward.getNumResults(); ++i)
        found.insert(zorse::testing::keyOf(attributeOfResult(backward, i)));
      for (int i = 0; i < unit.parameters_size(); ++i)
        if (b.summary().parameters(unit.parameters(i)).trainable())
          expected.insert({"parameter_gradient", i});
      for (int i = 0; i < unit.values_in_size(); ++i)
        if (b.summary().values(unit.values_in(i)).needs_gradient())
          expected.insert({"boundary_in_gradient", i});
      EXPECT_EQ(found, expected) << unit.name();
    }
  }
}

TEST(Units, UpdatesFollowTheOptimizer) {
  UnitOptions options;
  options.training.set_optimizer(bundle::TrainingOptions::SGD);
  Built plain = build(readModel("llama.mlir"), options);
  EXPECT_EQ(maxOptimizerStates(plain.summary()), 0u);
  options.training.set_momentum(0.9);
  Built momentum = build(readModel("llama.mlir"), options);
  EXPECT_EQ(maxOptimizerStates(momentum.summary()), 1u);
  EXPECT_EQ(functionOf(*momentum.model, "update.plain").getNumResults(), 2u);
  options.training.set_optimizer(bundle::TrainingOptions::ADAM);
  EXPECT_EQ(maxOptimizerStates(build(readModel("llama.mlir"), options).summary()), 2u);
  options.training.set_amsgrad(true);
  options.training.set_ema_decay(0.9);
  Built four = build(readModel("llama.mlir"), options);
  EXPECT_EQ(maxOptimizerStates(four.summary()), 4u);
  EXPECT_EQ(functionOf(*four.model, "update.plain").getNumResults(), 5u);
}

TEST(Units, ErrorsNameTheProblem) {
  Built none = build("func.func @other() { return }");
  EXPECT_FALSE(none.model);
  EXPECT_EQ(none.messages.at(0), "expected a function @model of one block");
  Built lossless =
      build(std::regex_replace(readModel("llama.mlir"), std::regex("\"numerator\""), "\"none\""));
  EXPECT_FALSE(lossless.model);
  EXPECT_NE(lossless.messages.at(0).find("the model has no loss"), std::string::npos);
  Built untrained =
      build(std::regex_replace(frozenModel(), std::regex("trainable = true"), "trainable = false"));
  EXPECT_FALSE(untrained.model);
  EXPECT_NE(untrained.messages.at(0).find("nothing to train"), std::string::npos);
  Built counted =
      build(std::regex_replace(readModel("llama.mlir"), std::regex("\"count\""), "\"none\""));
  EXPECT_FALSE(counted.model);
  EXPECT_NE(counted.messages.at(0).find("reads count n0, but the model returns 0 counts"),
            std::string::npos);
}

TEST(Units, AParameterTheLossIgnoresIsLeftOutWithAWarning) {
  Built b = build(replaced(readModel("llama.mlir"), "func.func @model(",
                           "func.func @model(%pooler: tensor<3xf64> {zorse.parameter = \"pooler\", "
                           "zorse.trainable = true}, "));
  ASSERT_TRUE(b.model);
  ASSERT_EQ(b.messages.size(), 1u);
  EXPECT_EQ(b.messages[0],
            "parameter 'pooler' is never trained: the loss does not depend on it; it is left out");
  for (const bundle::ParameterInfo &parameter : b.summary().parameters())
    EXPECT_NE(parameter.name(), "pooler");
}

TEST(Groups, AlignAndPutDecayingFirst) {
  UnitOptions options;
  options.training.set_weight_decay(0.1);
  options.decay = "names:proj,head";
  Built b = build(readModel("llama.mlir"), options);
  ASSERT_TRUE(b.model);
  for (const bundle::FlatGroupInfo &group : b.summary().groups()) {
    int64_t end = 0;
    uint32_t rule = 0;
    for (uint32_t p : group.parameters()) {
      const bundle::ParameterInfo &parameter = b.summary().parameters(p);
      EXPECT_EQ(parameter.offset() * 8 % 512, 0);
      EXPECT_GE(parameter.offset(), end);
      end = parameter.offset() + 1;
      EXPECT_GE(parameter.update_rule(), rule);
      rule = parameter.update_rule();
      EXPECT_EQ(parameter.trainable(), group.trainable());
      bool matrix = parameter.trainable() && parameter.name().find("norm") == std::string::npos &&
                    parameter.name().find("embed") == std::string::npos;
      if (parameter.trainable())
        EXPECT_EQ(b.summary().update_rules(int(parameter.update_rule())).name(),
                  matrix ? "decay" : "plain")
            << parameter.name();
    }
    EXPECT_EQ(group.elements() * 8 % 512, 0);
  }
}

TEST(Groups, FollowRulesOfParameterGroups) {
  UnitOptions options;
  options.training.set_weight_decay(0.1);
  auto *heads = options.training.add_parameter_groups();
  heads->add_parameters("*head*");
  heads->set_learning_rate_scale(0.5);
  auto *same = options.training.add_parameter_groups(); // equal to the rule without weight decay
  same->add_parameters("*embed*");
  same->set_learning_rate_scale(1);
  same->set_weight_decay(0);
  Built b = build(readModel("llama.mlir"), options);
  ASSERT_TRUE(b.model);
  std::map<std::string, std::set<std::string>> byRule;
  for (const bundle::ParameterInfo &parameter : b.summary().parameters())
    if (parameter.trainable())
      byRule[b.summary().update_rules(int(parameter.update_rule())).name()].insert(
          parameter.name());
  EXPECT_EQ(byRule.size(), 3u);
  for (const std::string &name : byRule["group0.decay"])
    EXPECT_NE(name.find("head"), std::string::npos);
  for (const std::string &name : byRule["plain"])
    EXPECT_TRUE(name.find("norm") != std::string::npos || name.find("embed") != std::string::npos)
        << name;
  EXPECT_FALSE(byRule["decay"].empty());
  for (const bundle::UpdateRule &rule : b.summary().update_rules())
    EXPECT_EQ(rule.learning_rate_scale(), rule.name() == "group0.decay" ? 0.5 : 1.0);
}

TEST(Blocks, LongestRepeat) {
  auto repeat = [](std::vector<int> symbols) {
    units::Repeat r = units::longestRepeat(symbols);
    return std::vector<int>{r.first, r.period, r.count};
  };
  EXPECT_EQ(repeat({0, 1, 2, 1, 2, 1, 2, 3}), (std::vector<int>{1, 2, 3}));
  EXPECT_EQ(repeat({1, 1, 1}), (std::vector<int>{0, 1, 3}));
  EXPECT_EQ(repeat({0, 1, 2, 3}), (std::vector<int>{0, 0, 0}));
  EXPECT_EQ(repeat({}), (std::vector<int>{0, 0, 0}));
  EXPECT_EQ(repeat({0, 5, 1, 2, 5, 1, 2, 5}), (std::vector<int>{1, 3, 2}));
}

TEST(Blocks, MixedAttentionStaysOneBlockPerLayer) {
  // local, local, global, twice.
  std::vector<int> classes{0, 1, 2, 1, 2, 3, 2, 1, 2, 1, 2, 3, 2, 4};
  std::vector<std::string> kinds{"embedding"};
  for (int i = 0; i < 6; ++i)
    kinds.insert(kinds.end(), {"attention", "mlp"});
  kinds.push_back("head");
  units::Repeat blocks = units::findBlocks(classes, kinds);
  EXPECT_EQ(blocks.period, 2);
  EXPECT_EQ(blocks.count, 6);
  EXPECT_EQ(units::nameUnits(blocks, kinds)[5], "block 2 attention");
}

TEST(MaxFlow, CutNearestToTheSink) {
  // 0 -3-> 1 -2-> 2 -2-> 3: both edges of capacity 2 are minimum cuts; the later one is cut.
  MaxFlow flow(4);
  flow.addEdge(0, 1, 3);
  flow.addEdge(1, 2, 2);
  flow.addEdge(2, 3, 2);
  EXPECT_EQ(flow.solve(0, 3), 2);
  EXPECT_EQ(flow.sinkSide(3), (std::vector<bool>{false, false, false, true}));
}

} // namespace
