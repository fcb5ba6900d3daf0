// Tests the numbers of reports, and that all forms of a report agree.
#include "Must.h"

#include "LlamaShape.h"
#include "zorse/Planning/Report.h"

#include <nlohmann/json.hpp>

#include <gtest/gtest.h>

using namespace zorse;
using namespace zorse::planning;

namespace {

constexpr const char *kCluster = R"(
name: pair
nodes:
  - name: n0
    devices:
      - {name: a, type: A100-40}
      - {name: b, type: A100-40}
  - name: n1
    devices:
      - {name: t, type: T4}
      - {name: spare, type: T4}
)";

class ReportTest : public testing::Test {
protected:
  void SetUp() override {
    LlamaShape shape{"tiny", 3, 256, 704, 4, 4, 2048, 128, bundle::F16};
    summary = *makeSummary(shape);
    cluster = *readCluster(kCluster);
    costs = must(CostModel::make(summary, cluster, nullptr, {}));
  }

  Problem problem() { return {summary, cluster, *costs, 12}; }

  step::Plan planOf(const char *stages) {
    auto plan = step::readPlan(
        std::string(
            R"({"global_batch_size": 12, "devices": ["a", "b", "t", "spare"], "stages": )") +
            stages + "}",
        summary);
    EXPECT_FALSE(plan.failed()) << plan.message();
    EXPECT_EQ(applyCluster(*plan, cluster, bundle::F16).message(), "");
    return *plan;
  }

  bundle::ModelSummary summary;
  Cluster cluster;
  std::optional<CostModel> costs;
};

constexpr const char *kThree =
    R"([{"units": [0, 6], "devices": [{"device": "a", "samples": 8, "micro_batch_size": 2}, {"device": "b", "samples": 4, "micro_batch_size": 2}]}, {"units": [6, 8], "devices": ["t"], "micro_batch_size": 2}])";

TEST_F(ReportTest, Counts) {
  step::StepGraph graph;
  auto report = makeReport(problem(), planOf(kThree), &graph);
  ASSERT_FALSE(report.failed()) << report.message();
  EXPECT_EQ(report->batch, 12);
  EXPECT_EQ(report->tokensPerSample, 128);
  ASSERT_EQ(report->stages.size(), 2u);
  EXPECT_EQ(report->stages[0].deviceTypes, "2 x A100-40");
  EXPECT_EQ(report->stages[0].units, "embedding ... block 2 attention");
  EXPECT_EQ(report->stages[1].samples, 12);
  EXPECT_EQ(report->stages[1].maxRows, 2);
  EXPECT_EQ(report->devices[0].samples, 8);
  EXPECT_EQ(report->devices[3].cells, 0);
  ASSERT_EQ(report->types.size(), 2u);
  EXPECT_EQ(report->types[1].used, 1u);
  EXPECT_NEAR(report->types[0].work + report->types[1].work, 1, 1e-12);
  EXPECT_GT(report->step, 0);
  const Efficiency &e = report->efficiency;
  EXPECT_NEAR(e.idle * e.kernel * e.balance * e.recompute * e.bubble * e.exposed, e.eta, 1e-9);
  EXPECT_NEAR(e.step, report->step, 1e-9 * e.step);
  // All boundary values cross from n0 to n1: 12 samples of 128 x 256 in 16 bits, and their
  // gradients back.
  ASSERT_FALSE(report->links.empty());
  double out = 0;
  for (const auto &link : report->links)
    if (link.name.find("n0") != std::string::npos && link.name.find("out") != std::string::npos &&
        link.name.find("NIC") != std::string::npos)
      out += link.bytes;
  EXPECT_EQ(out, 12.0 * 128 * 256 * 2);
  EXPECT_FALSE(graph.buffers.empty());
}

TEST(ReportTables, EqualStagesAndDevicesShareARow) {
  Report report;
  report.step = 1;
  for (uint32_t i = 0; i < 6; ++i) {
    Report::Stage stage;
    stage.unitBegin = int32_t(i);
    stage.unitEnd = int32_t(i + 1);
    stage.units = "block " + std::to_string(i);
    stage.devices = {i % 2};
    stage.deviceTypes = "1 x T4";
    stage.samples = i < 5 ? 8 : 4; // the last one differs
    stage.minRows = stage.maxRows = 2;
    stage.meanBusy = 0.5 + 0.01 * i;
    stage.memory = 1000 * (i + 1);
    report.stages.push_back(stage);
  }
  for (const char *name : {"a", "b", "c"}) {
    Report::Device device;
    device.name = name;
    device.type = "T4";
    device.samples = name[0] == 'c' ? 4 : 8;
    report.devices.push_back(device);
  }
  const std::string folded = printReport(report);
  EXPECT_NE(folded.find("0-5    5 stages of 1 unit: block 0 to block 4"), std::string::npos)
      << folded;
  EXPECT_NE(folded.find("50-54 %"), std::string::npos) << folded;
  EXPECT_NE(folded.find("5-6    block 5"), std::string::npos) << folded;
  EXPECT_NE(folded.find("a and 1 like it"), std::string::npos) << folded;
  const std::string whole = printReport(report, 32, /*folded=*/false);
  for (const char *row : {"0-1    block 0", "4-5    block 4", "\n  b  "})
    EXPECT_NE(whole.find(row), std::string::npos) << whole;
  EXPECT_EQ(whole.find("stages of"), std::string::npos) << whole;
}

TEST_F(ReportTest, Forms) {
  step::StepGraph graph;
  step::Plan plan = planOf(kThree);
  auto report = makeReport(problem(), plan, &graph);
  ASSERT_FALSE(report.failed()) << report.message();

  std::string table = printReport(*report);
  for (const char *word : {"2 x A100-40", "predicted step", "efficiency", "tokens/s", "spare"})
    EXPECT_NE(table.find(word), std::string::npos) << word << "\n" << table;

  nlohmann::json json = nlohmann::json::parse(writeReportJson(*report));
  EXPECT_EQ(json["devices"].size(), 4u);
  EXPECT_EQ(json["stages"][0]["devices"], nlohmann::json({"a", "b"}));
  EXPECT_DOUBLE_EQ(json["step_seconds"].get<double>(), report->step);

  auto reasons = explain(problem(), plan, *report,
                         [](const Cluster &) { return std::optional(Replanned{1e-9, 0}); });
  std::string text = printReasons(reasons);
  for (const char *word : {"the pace is set by", "1 device has no work in this plan: spare",
                           "one more device like a (A100-40): the step would take 100.0 % less"})
    EXPECT_NE(text.find(word), std::string::npos) << word << "\n" << text;

  // If the search on a larger cluster finds a worse plan or none, the current plan is kept, because
  // it also runs there.
  for (const std::optional<Replanned> &again :
       {std::optional<Replanned>(), std::optional(Replanned{2 * report->step, 0})}) {
    const std::string kept =
        printReasons(explain(problem(), plan, *report, [&](const Cluster &) { return again; }));
    EXPECT_NE(kept.find("one more device like a (A100-40) would not help"), std::string::npos)
        << kept;
  }

  std::string page = writeReportPage(*report, plan, graph, reasons);
  EXPECT_EQ(page.find("http"), std::string::npos); // self-contained
  size_t begin = page.find("const data=") + 11;
  nlohmann::json data = nlohmann::json::parse(page.substr(begin, page.find(";\n", begin) - begin));
  EXPECT_EQ(data["timeline"].size(), 3u); // devices with work
  EXPECT_EQ(data["tiling"].size(), plan.cells.size());
  size_t events = 0;
  for (const auto &row : data["timeline"])
    for (const auto &event : row["e"])
      events += event[0] == 0;
  EXPECT_EQ(events, plan.cells.size()); // every forward
}

// A given plan is compared with another plan on the same devices. Durations determine the step of a
// plan; its efficiency is that of modeled times, and reasons that need these are left out.
TEST_F(ReportTest, GivenPlans) {
  step::Plan plan = planOf(kThree);
  auto report = makeReport(problem(), plan);
  ASSERT_FALSE(report.failed()) << report.message();
  const double modeled = report->step;
  auto reasonsFor = [&] {
    return printReasons(explain(
        problem(), plan, *report,
        [&](const Cluster &) { return std::optional(Replanned{0.5 * report->step, 0}); },
        /*byPrice=*/false,
        /*given=*/true));
  };
  EXPECT_NE(reasonsFor().find("another plan on the same devices: the step would take 50.0 % less"),
            std::string::npos)
      << reasonsFor();

  plan.durations.emplace();
  plan.durations->forward.assign(plan.cells.size(), 1);
  plan.durations->backward.assign(plan.cells.size(), 2);
  report = makeReport(problem(), plan);
  ASSERT_FALSE(report.failed()) << report.message();
  EXPECT_TRUE(report->givenDurations);
  EXPECT_GT(report->step, 18); // device t has 6 cells of 3 s
  EXPECT_NEAR(report->efficiency.step, modeled, 1e-9 * modeled);
  EXPECT_NE(printReport(*report).find("instead of the plan's durations"), std::string::npos)
      << printReport(*report);
  EXPECT_NE(reasonsFor().find("task times are the plan's \"durations\""), std::string::npos)
      << reasonsFor();
  EXPECT_EQ(reasonsFor().find("the step would take 50.0 % less"), std::string::npos)
      << reasonsFor();
}

// The memory chart agrees with the tables: its maximum is the peak of live buffers, without buffers
// that are live at different times.
TEST_F(ReportTest, MemoryPictureIsNoMoreThanPlanned) {
  summary = *makeSummary({"wide", 3, 2048, 5632, 16, 16, 32000, 1024, bundle::F16});
  costs = must(CostModel::make(summary, cluster, nullptr, {}));
  for (const bool phased : {false, true}) {
    step::StepGraph graph;
    step::Plan plan = planOf(kThree);
    if (phased) {
      plan.schedule.kind = step::ScheduleKind::BreadthFirst;
      step::OffloadRule rule;
      rule.reshardAfterForward = true;
      rule.parameters = step::MemoryTier::Host;
      plan.offload.push_back(std::move(rule));
    }
    auto report = makeReport(problem(), plan, &graph);
    ASSERT_FALSE(report.failed()) << report.message();
    std::string page = writeReportPage(*report, plan, graph, {});
    EXPECT_NE(page.find("id=tilinglegend"), std::string::npos);
    size_t begin = page.find("const data=") + 11;
    nlohmann::json data =
        nlohmann::json::parse(page.substr(begin, page.find(";\n", begin) - begin));
    ASSERT_EQ(data["memory"].size(), data["timeline"].size());
    for (size_t i = 0; i < data["memory"].size(); ++i) {
      const auto &device = report->devices[data["timeline"][i]["d"].get<size_t>()];
      uint64_t peak = 0;
      for (size_t point = 0; point < data["memory"][i][0].size(); ++point) {
        uint64_t together = 0;
        for (const auto &purpose : data["memory"][i])
          together += purpose[point].get<uint64_t>();
        peak = std::max(peak, together);
      }
      EXPECT_LE(peak, device.memory >> 20) << device.name;
      EXPECT_GE(double(peak), 0.8 * double(device.memory >> 20)) << device.name;
      EXPECT_NE(data["devices"][i][5].get<std::string>().find(" of "), std::string::npos);
      const auto &gathered = data["memory"][i][1];
      if (phased) // parameters that are gathered by phase are in the chart as in the table
        EXPECT_GE(double(std::max_element(gathered.begin(), gathered.end())->get<uint64_t>()),
                  0.8 * double(device.use.gathered >> 20))
            << device.name;
    }
  }
}

TEST_F(ReportTest, HostileNamesStayText) {
  summary.set_name("</script><b>&");
  step::StepGraph graph;
  step::Plan plan = planOf(kThree);
  auto report = makeReport(problem(), plan, &graph);
  ASSERT_FALSE(report.failed()) << report.message();
  std::string page = writeReportPage(*report, plan, graph, {});
  EXPECT_EQ(page.find("</script><b>"), std::string::npos);
}

TEST_F(ReportTest, Compares) {
  auto a = makeReport(problem(), planOf(kThree)),
       b = makeReport(problem(),
                      planOf(R"([{"units": [0, 8], "devices": ["a"], "micro_batch_size": 4}])"));
  ASSERT_FALSE(a.failed() || b.failed()) << a.message() << b.message();
  std::string text = compareReports(*a, "three", *b, "one");
  for (const char *word : {"three", "one", "predicted step", "devices used"})
    EXPECT_NE(text.find(word), std::string::npos) << word << "\n" << text;
}

} // namespace
