// Positions of optimizer states, and the places at which owners may divide groups.
#include "zorse/Summary/StateLayout.h"
#include "zorse/Summary/FlatGroups.h"
#include "zorse/Summary/Optimizers.h"
#include "zorse/Summary/Summary.h"

#include <gtest/gtest.h>

using namespace zorse;

namespace {

/// One group with parameters of these sizes, updated by an optimizer in blocks.
bundle::ModelSummary grouped(bundle::TrainingOptions::Optimizer optimizer,
                             const std::vector<std::vector<int64_t>> &shapes,
                             const std::vector<std::vector<int64_t>> &blocks) {
  bundle::ModelSummary summary;
  summary.mutable_training()->set_optimizer(optimizer);
  for (size_t p = 0; p < shapes.size(); ++p) {
    bundle::UpdateRule &rule = *summary.add_update_rules();
    rule.mutable_block()->Add(blocks[p].begin(), blocks[p].end());
    addOptimizerStates(summary.training(), rule);
    bundle::ParameterInfo &parameter = *summary.add_parameters();
    parameter.mutable_shape()->Add(shapes[p].begin(), shapes[p].end());
    parameter.set_type(bundle::F32);
    parameter.set_trainable(true);
    parameter.set_update_rule(uint32_t(p));
    summary.add_units();
    summary.mutable_units(0)->add_parameters(uint32_t(p));
  }
  layOutGroups(summary, std::vector<bundle::ElementType>(shapes.size()));
  return summary;
}

} // namespace

TEST(StateLayout, OnePerElement) {
  const auto summary = grouped(bundle::TrainingOptions::ADAMW, {{100}, {7}}, {{}, {}});
  ASSERT_EQ(summary.groups_size(), 1);
  const StateLayout layout(summary, 0, 1);
  EXPECT_EQ(layout.entries(), 256); // both begin at a multiple of 512 bytes
  EXPECT_EQ(layout.begin(128), 128);
  EXPECT_EQ(layout.end(135), 135);
  EXPECT_EQ(ownerBorder(summary, 0, 200), 128);
}

TEST(StateLayout, Codes) {
  const auto summary =
      grouped(bundle::TrainingOptions::ADAMW_8BIT, {{4096 * 17}, {4096}}, {{256}, {256}});
  ASSERT_EQ(summary.groups_size(), 1);
  const StateLayout codes(summary, 0, 0), scales(summary, 0, 1);
  EXPECT_EQ(codes.type(), bundle::U8);
  EXPECT_EQ(codes.begin(256), 256);
  EXPECT_EQ(scales.type(), bundle::F32);
  EXPECT_EQ(scales.end(4096 * 17), 272);
  EXPECT_EQ(scales.begin(4096 * 17), 384); // the next parameter's begin at a multiple of 512 bytes
  EXPECT_EQ(scales.entries(), 512);
  // 128 scales have 512 bytes.
  EXPECT_EQ(ownerBorder(summary, 0, 32768 + 5), 32768);
  EXPECT_EQ(ownerBorder(summary, 0, 32767), 0);
  EXPECT_EQ(ownerBorder(summary, 0, 65536), 32768)
      << "the last part extends to the parameter's end";
  EXPECT_EQ(ownerBorder(summary, 0, 4096 * 17), 4096 * 17);
  EXPECT_DOUBLE_EQ(stateBytesPerElement(summary.update_rules(0), bundle::F32), 2 + 8.0 / 256);
}

TEST(StateLayout, RowsAndColumns) {
  const auto summary =
      grouped(bundle::TrainingOptions::ADAFACTOR, {{3, 20, 10}, {50, 4}}, {{3, 20, 10}, {50, 4}});
  ASSERT_EQ(summary.groups_size(), 1);
  const StateLayout rows(summary, 0, 0), columns(summary, 0, 1);
  EXPECT_EQ(rows.end(600), 60);
  EXPECT_EQ(columns.end(600), 30);
  EXPECT_EQ(rows.begin(640), 128);
  EXPECT_EQ(columns.end(840), 132);
  EXPECT_EQ(ownerBorder(summary, 0, 700), 640);
}

TEST(StateLayout, GroupsAgreeAboutStates) {
  const auto mixed = grouped(bundle::TrainingOptions::ADAMW_8BIT, {{4096}, {100}}, {{256}, {}});
  EXPECT_EQ(mixed.groups_size(), 2);
  const auto factored = grouped(bundle::TrainingOptions::ADAFACTOR, {{8, 8}, {64}}, {{8, 8}, {64}});
  EXPECT_EQ(factored.groups_size(), 2);
}
