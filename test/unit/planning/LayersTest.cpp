// Tests tables of layers: the resulting model, and one message per error.
#include "zorse/Planning/Layers.h"

#include "zorse/Planning/CostModel.h"
#include "zorse/Summary/Optimizers.h"
#include "zorse/Summary/Summary.h"

#include "PlanningTestSupport.h"

#include <gtest/gtest.h>

#include <functional>

#include <nlohmann/json.hpp>

using namespace zorse;
using namespace zorse::planning;
using Json = nlohmann::json;

namespace {

Json table() {
  return Json::parse(R"({"compute_type": "f16", "tokens_per_sample": 4,
    "classes": {"embedding": {"parameters": 1000, "output": 64, "saved": 0},
                "block": {"parameter_bytes": 512, "output": 64, "saved": 320, "deferred": 128, "workspace": {"fixed": 7, "per_sample": 5}},
                "head": {"parameters": 0, "saved": 96, "workspace": 9, "flops": 1e6}},
    "layers": [{"class": "embedding"}, {"class": "block", "count": 3}, {"class": "head"}],
    "devices": [{"device": "F1", "unit_classes": {
      "embedding": [{"batch_size": 1, "forward": 1, "backward": 2}],
      "block": [{"batch_size": 1, "forward": 3, "backward": 4}, {"batch_size": 3, "forward": 5, "backward": 8}],
      "head": [{"batch_size": 1, "forward": 9, "backward": 9}]}}]})");
}

/// The error message for a changed table.
std::string mistake(const std::function<void(Json &)> &change) {
  Json changed = table();
  change(changed);
  return readLayers(changed.dump()).message();
}

TEST(Layers, BecomeASummaryAndAProfile) {
  Result<LayerTable> read = readLayers(table().dump());
  ASSERT_FALSE(read.failed()) << read.message();
  const bundle::ModelSummary &summary = read->summary;
  ASSERT_EQ(summary.units_size(), 5);
  EXPECT_EQ(classNames(summary), (std::vector<std::string>{"embedding", "block", "head"}));
  EXPECT_EQ(summary.units(3).name(), "block 2");
  const bundle::UnitClass &block = classOf(summary, summary.units(3));
  EXPECT_EQ(block.saved_bytes().per_row(), 320);
  EXPECT_EQ(functionOf(block, bundle::UnitFunction::FORWARD).workspace().fixed(), 7);
  EXPECT_EQ(functionOf(block, bundle::UnitFunction::BACKWARD).workspace().per_row(), 5);
  EXPECT_EQ(block.saved_for_weight_grad_bytes().per_row(), 128);
  EXPECT_TRUE(summary.units(1).splits());
  EXPECT_FALSE(summary.units(0).splits());
  EXPECT_FALSE(summary.units(4).splits());
  EXPECT_EQ(elementsOf(summary.parameters(1)), 256); // 512 bytes of f16
  EXPECT_EQ(summary.groups_size(), 4);               // the head has no parameters
  EXPECT_EQ(summary.values_size(), 4);
  EXPECT_EQ(summary.values(0).bytes_per_row(), 64);
  EXPECT_EQ(maxOptimizerStates(summary), 2u);
  EXPECT_EQ(functionOf(block, bundle::UnitFunction::FORWARD).flops_per_row(), 2 * 256 * 4);
  EXPECT_EQ(functionOf(summary, summary.units(4), bundle::UnitFunction::FORWARD).flops_per_row(),
            1e6);
  EXPECT_EQ(read->withoutFlops, (std::set<std::string>{"block", "embedding"}));
  std::string all;
  for (const std::string &line : read->assumptions)
    all += line + "\n";
  EXPECT_EQ(
      all,
      "layers without \"workspace\" need none: 'embedding'\n"
      "layers without \"flops\" have 2 for each parameter and token, for shares of the work and of "
      "a backward's two parts: 'block', 'embedding'\n"
      "layers without \"deferred\" do not split their backward: 'embedding'\n"
      "a sample's input is 32 bytes (\"input\" is not given)\n"
      "the optimizer keeps 2 numbers of 4 bytes for each parameter (\"moments\" is not given)\n");
}

TEST(Layers, TimesAreTheTables) {
  Result<LayerTable> read = readLayers(table().dump());
  ASSERT_FALSE(read.failed()) << read.message();
  Cluster cluster = test::twoNodes();
  for (ClusterDevice &device : cluster.devices) {
    device.type = "F1";
    std::fill(std::begin(device.flopsPerSecond), std::end(device.flopsPerSecond), 1e12);
  }
  ASSERT_EQ(checkLayerTimes(*read, cluster, read->profile).message(), "");
  Result<CostModel> costs = CostModel::make(read->summary, cluster, &read->profile, {});
  ASSERT_FALSE(costs.failed()) << costs.message();
  EXPECT_DOUBLE_EQ(costs->unit(0, 2, step::UnitTask::Forward, 2), 4);   // between two points
  EXPECT_DOUBLE_EQ(costs->unit(0, 2, step::UnitTask::Backward, 6), 16); // beyond the last point
  cluster.devices[1].type = "other";
  cluster.devices[1].name = "else";
  const std::string error = checkLayerTimes(*read, cluster, read->profile).message();
  EXPECT_EQ(error, "device 'else' (other): expected forward and backward times of class 'block', "
                   "found none; give them under \"devices\" for this "
                   "device or its type, or \"flops\" of the class for an estimate");
  read->withoutFlops.clear();
  EXPECT_TRUE(checkLayerTimes(*read, cluster, read->profile).succeeded());
}

TEST(Layers, Mistakes) {
  const std::pair<std::function<void(Json &)>, const char *> cases[] = {
      {[](Json &t) { t["sizes"] = 1; }, "unknown key \"sizes\"; known are"},
      {[](Json &t) { t["format"] = 2; }, "format: expected a whole number from 1 to 1, got 2"},
      {[](Json &t) { t.erase("compute_type"); }, "missing key \"compute_type\" (f32, f16 or bf16)"},
      {[](Json &t) { t["compute_type"] = "f8"; },
       "compute_type: expected f32, f16 or bf16, got \"f8\""},
      {[](Json &t) { t["moments"] = 6; }, "moments: expected a whole number from 0 to 5, got 6"},
      {[](Json &t) { t["tokens_per_sample"] = 0; },
       "tokens_per_sample: expected a whole number from 1"},
      {[](Json &t) { t["input"] = -1; }, "input: expected a whole number from 0"},
      {[](Json &t) { t.erase("classes"); }, "missing key \"classes\""},
      {[](Json &t) { t["classes"] = Json::object(); },
       "classes: expected an object of 1 to 4096 classes, got {}"},
      {[](Json &t) { t["classes"]["layer 3"] = t["classes"]["block"]; },
       "classes[\"layer 3\"]: expected a name of words"},
      {[](Json &t) { t["classes"]["block"]["bytes"] = 1; },
       "classes[\"block\"]: unknown key \"bytes\""},
      {[](Json &t) { t["classes"]["block"]["parameters"] = 1; },
       "classes[\"block\"]: expected one of \"parameters\" (elements) and"},
      {[](Json &t) { t["classes"]["block"].erase("parameter_bytes"); }, "found neither"},
      {[](Json &t) { t["classes"]["block"]["parameter_bytes"] = 511; },
       "classes[\"block\"].parameter_bytes: expected a multiple of the 2 bytes"},
      {[](Json &t) { t["classes"]["embedding"]["parameters"] = 0.5; },
       "classes[\"embedding\"].parameters: expected a whole number"},
      {[](Json &t) { t["classes"]["block"].erase("saved"); },
       "classes[\"block\"]: missing key \"saved\""},
      {[](Json &t) { t["classes"]["block"].erase("output"); },
       "classes[\"block\"]: missing key \"output\""},
      {[](Json &t) { t["classes"]["block"]["deferred"] = "1 GB"; },
       "classes[\"block\"].deferred: expected a whole number"},
      {[](Json &t) { t["classes"]["block"]["workspace"]["per_row"] = 1; },
       "classes[\"block\"].workspace: unknown key \"per_row\""},
      {[](Json &t) { t["classes"]["head"]["flops"] = -1; },
       "classes[\"head\"].flops: expected FLOPs from 0"},
      {[](Json &t) { t.erase("layers"); }, "missing key \"layers\""},
      {[](Json &t) { t["layers"] = Json::array(); },
       "layers: expected at least one layer, found none"},
      {[](Json &t) { t["layers"][1].erase("class"); }, "layers[1]: missing key \"class\""},
      {[](Json &t) { t["layers"][1]["class"] = "tail"; },
       "layers[1].class: \"tail\" is not in \"classes\"; add it there, or name one of block, "
       "embedding, head"},
      {[](Json &t) { t["layers"][1]["count"] = 0; },
       "layers[1].count: expected a whole number from 1"},
      {[](Json &t) { t["layers"][1]["count"] = 8192; },
       "layers[1].count: expected at most 8192 layers altogether"},
      {[](Json &t) { t["layers"].erase(1); },
       "classes[\"block\"]: expected a layer of this class, found none"},
      {[](Json &t) {
         t["layers"] = {{{"class", "head"}}};
         t["classes"].erase("block");
         t["classes"].erase("embedding");
       },
       "layers: expected a layer with parameters"},
      {[](Json &t) { t["devices"][0]["unit_classes"]["tail"] = Json::array(); },
       "devices[0].unit_classes[\"tail\"]: is not in \"classes\""},
      {[](Json &t) { t["devices"][0]["unit_classes"]["block"][0]["batch_size"] = 0; },
       "devices[0].unit_classes[\"block\"][0].batch_size: expected a whole number from 1"},
  };
  for (const auto &[change, what] : cases) {
    const std::string found = mistake(change);
    EXPECT_NE(found.find(what), std::string::npos) << found << "\n  expected " << what;
  }
  const std::string error = readLayersFile("no/such/layers.json").message();
  EXPECT_EQ(error, "no/such/layers.json: cannot be read: No such file or directory");
}

} // namespace
