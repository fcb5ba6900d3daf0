// Tests the elements that arguments of units consist of (runtime/schema/ParameterRuns.h).
#include "ParameterRuns.h"

#include <gtest/gtest.h>

using namespace zorse;

namespace {

/// A parameter of [rows, 4] behind 100 elements of its group, and a unit that reads `runs` of it.
struct Model {
  bundle::ModelSummary summary;
  bundle::UnitInfo unit;

  Model(int64_t rows, const std::vector<std::pair<int64_t, int64_t>> &runs) {
    bundle::ParameterInfo &parameter = *summary.add_parameters();
    parameter.set_offset(100);
    parameter.add_shape(rows);
    parameter.add_shape(4);
    unit.add_parameters(0);
    if (runs.empty())
      return;
    bundle::UnitInfo::ParameterPart &part = *unit.add_parts();
    for (auto [begin, end] : runs) {
      part.add_begin(begin);
      part.add_end(end);
    }
  }
  Compact elements() const { return bundle::parameterRuns(summary, unit, 0); }
  bool isSound() const { return bundle::hasSoundParts(summary, unit); }
};

} // namespace

TEST(ParameterRuns, WithoutAPartAllElements) {
  const Compact elements = Model(5, {}).elements();
  EXPECT_EQ(elements.elements(), 20);
  EXPECT_EQ(bundle::hullOf(elements), std::pair(int64_t(100), int64_t(120)));
}

TEST(ParameterRuns, RunsAreConsecutiveInTheArgument) {
  const Compact elements = Model(5, {{0, 4}, {12, 20}}).elements();
  EXPECT_EQ(elements.elements(), 12);
  EXPECT_EQ(elements.place(112, 120), 4);
  EXPECT_EQ(bundle::hullOf(elements), std::pair(int64_t(100), int64_t(120)));
}

TEST(ParameterRuns, AParameterMayHaveNoElements) {
  EXPECT_EQ(bundle::hullOf(Model(0, {}).elements()), std::pair(int64_t(0), int64_t(0)));
}

TEST(ParameterRuns, ImpossibleShapesHaveNoElements) {
  EXPECT_EQ(bundle::hullOf(Model(-1, {}).elements()), std::pair(int64_t(0), int64_t(0)));
  EXPECT_EQ(bundle::hullOf(Model(INT64_MAX, {}).elements()), std::pair(int64_t(0), int64_t(0)));
}

TEST(ParameterRuns, PartsThatAreImpossible) {
  EXPECT_TRUE(Model(5, {}).isSound());
  EXPECT_TRUE(Model(5, {{0, 4}, {12, 20}}).isSound());
  EXPECT_FALSE(Model(5, {{0, 4}, {12, 21}}).isSound()) << "ends behind the parameter";
  EXPECT_FALSE(Model(5, {{-1, 4}}).isSound());
  EXPECT_FALSE(Model(5, {{4, 4}}).isSound()) << "empty";
  EXPECT_FALSE(Model(5, {{8, 12}, {4, 8}}).isSound()) << "descend";
  Model model(5, {{0, 4}});
  model.unit.mutable_parts(0)->set_argument(1);
  EXPECT_FALSE(model.isSound()) << "the unit has one parameter";
  model.unit.mutable_parts(0)->set_argument(0);
  model.unit.set_parameters(0, 7);
  EXPECT_FALSE(model.isSound()) << "there is one parameter";
}
