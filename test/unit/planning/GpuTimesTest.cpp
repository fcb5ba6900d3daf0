// Tests invariants of the GPU time model, and its use in cost models and reports.
#include "Planning/Costs/GpuTimes.h"

#include "LlamaShape.h"
#include "zorse/Planning/CostModel.h"
#include "zorse/Planning/DeviceDefaults.h"

#include <gtest/gtest.h>

using namespace zorse;
using namespace zorse::planning;
using step::UnitTask;

namespace {

bundle::AffineSize fixed(int64_t amount) {
  bundle::AffineSize extent;
  extent.set_fixed(amount);
  return extent;
}
bundle::AffineSize perRow(int64_t amount) {
  bundle::AffineSize extent;
  extent.set_per_row(amount);
  return extent;
}

bundle::FunctionCost::Matmul product(bundle::AffineSize m, int64_t n, int64_t k,
                                     bundle::ElementType type = bundle::BF16) {
  bundle::FunctionCost::Matmul p;
  *p.mutable_m() = m;
  *p.mutable_n() = fixed(n);
  *p.mutable_k() = fixed(k);
  *p.mutable_batch() = fixed(1);
  p.set_operands(type);
  p.set_result(type);
  p.set_count(1);
  return p;
}

/// A cluster of one device with the given keys.
Cluster one(const std::string &keys) {
  Result<Cluster> cluster =
      readCluster("nodes:\n  - name: n\n    devices:\n      - {name: d, " + keys + "}\n");
  EXPECT_FALSE(cluster.failed()) << cluster.message();
  return *cluster;
}

GpuRates a100() {
  Cluster cluster = one("type: A100-80");
  return gpuRates(cluster.devices[0], bundle::BF16,
                  cluster.devices[0].flopsPerSecond[speedIndex(bundle::BF16)]);
}

bundle::ModelSummary llama(const char *precision = "bf16") {
  LlamaShape shape = *findLlamaShape("llama-7b");
  shape.sequence = 2048;
  shape.computeType = std::string(precision) == "f32"   ? bundle::F32
                      : std::string(precision) == "f16" ? bundle::F16
                                                        : bundle::BF16;
  return *makeSummary(shape);
}

CostModel costs(const bundle::ModelSummary &summary, const Cluster &cluster,
                const Profile *profile = nullptr) {
  Result<CostModel> made = CostModel::make(summary, cluster, profile, {});
  EXPECT_FALSE(made.failed()) << made.message();
  return *made;
}

TEST(GpuTimes, LargeProductsNearTheirSpeed) {
  const GpuRates rates = a100();
  const double seconds = productSeconds(product(fixed(16384), 8192, 8192), 1, rates),
               min = 2.0 * 16384 * 8192 * 8192 / rates.products;
  EXPECT_GE(seconds, min);
  EXPECT_LE(seconds, 1.1 * min);
}

TEST(GpuTimes, TheLastWaveMayBeAlmostEmpty) {
  const GpuRates rates = a100(); // 108 SMs
  // 12 x 9 tiles of 256 x 128, and k too short for split-k.
  const double full = productSeconds(product(fixed(256 * 12), 128 * 9, 500), 1, rates);
  const double more = productSeconds(product(fixed(256 * 12 + 1), 128 * 9, 500), 1, rates);
  EXPECT_GT(more, 1.2 * full);
}

TEST(GpuTimes, SumsOverManyRowsAreCutIntoParts) {
  // A weight gradient: with 36 tiles, two thirds of the 108 SMs would be idle.
  const GpuRates rates = a100();
  auto gradient = product(fixed(768), 768, 0);
  *gradient.mutable_k() = perRow(1024);
  const double seconds = productSeconds(gradient, 8, rates),
               min = 2.0 * 768 * 768 * 8192 / rates.products;
  EXPECT_LT(seconds, 2.5 * min);
}

TEST(GpuTimes, NoProductIsFasterThanItsMemory) {
  const GpuRates rates = a100();
  // Attention scores: 64 multiplications per written number.
  auto scores = product(fixed(1024), 1024, 64);
  *scores.mutable_batch() = perRow(12);
  EXPECT_GE(productSeconds(scores, 8, rates), 8 * 12 * 1024.0 * 1024 * 2 / rates.bandwidth);
}

TEST(GpuTimes, MoreIsNeverFaster) {
  const GpuRates rates = a100();
  for (int64_t n : {64, 768, 3000})
    for (int64_t k : {64, 768, 4096}) {
      double before = 0;
      for (int64_t rows = 1; rows <= 200; ++rows) {
        const double now = productSeconds(product(perRow(100), n, k), rows, rates);
        EXPECT_GE(now, before) << rows << " rows, " << n << " x " << k;
        before = now;
      }
    }
  bundle::FunctionCost work;
  work.set_launches(2);
  *work.mutable_bytes() = perRow(1 << 20);
  *work.add_matmuls() = product(perRow(512), 512, 512);
  const double plain = gpuSeconds(work, false, 4, rates);
  bundle::FunctionCost more = work;
  more.set_launches(3);
  EXPECT_GT(gpuSeconds(more, false, 4, rates), plain);
  more = work;
  *more.mutable_bytes() = perRow(2 << 20);
  EXPECT_GT(gpuSeconds(more, false, 4, rates), plain);
  more = work;
  more.set_attention_flops_per_row(1e9);
  EXPECT_GT(gpuSeconds(more, false, 4, rates), plain);
  // Attention is slower in the backward.
  EXPECT_GT(gpuSeconds(more, true, 4, rates), gpuSeconds(more, false, 4, rates));
  EXPECT_EQ(gpuSeconds(work, false, 0, rates), 0);
  EXPECT_EQ(gpuSeconds(bundle::FunctionCost(), false, 4, rates), 0);
}

TEST(GpuTimes, OperandsInF32HaveTheirOwnSpeed) {
  const GpuRates rates = a100();
  EXPECT_GT(productSeconds(product(fixed(4096), 4096, 4096, bundle::F32), 1, rates),
            10 * productSeconds(product(fixed(4096), 4096, 4096), 1, rates));
}

TEST(GpuTimes, KnownTypesAreModelled) {
  const bundle::ModelSummary summary = llama();
  const Cluster cluster = one("type: A100-80");
  const CostModel modelled = costs(summary, cluster),
                  roofline = costs(summary, one("type: A100-80, half_peak_rows: 120"));
  EXPECT_NE(modelled.source(0).find("modeled: products at most 271 TFLOP/s (0.87 of the vendor's "
                                    "312) in waves of tiles on 108 multiprocessors, attention"),
            std::string::npos)
      << modelled.source(0);
  EXPECT_EQ(roofline.source(0), "a roofline of 271 TFLOP/s (half of it at 120 rows) and 2000 GB/s");
  for (UnitTask task : {UnitTask::Forward, UnitTask::Backward, UnitTask::InputGradients,
                        UnitTask::WeightGradients}) {
    double before = 0;
    for (int64_t rows : {1, 2, 3, 8, 63, 64, 65, 66, 100, 1000}) { // also beyond the table
      const double now = modelled.unit(0, 1, task, rows);
      EXPECT_GT(now, before) << rows;
      EXPECT_GT(now, 0.5 * roofline.unit(0, 1, task, rows));
      EXPECT_LT(now, 2.5 * roofline.unit(0, 1, task, rows));
      before = now;
    }
  }
  // Both parts of a backward together take at least as long as the whole.
  for (int32_t unit : {1, 2, 33})
    EXPECT_GE(modelled.unit(0, unit, UnitTask::InputGradients, 2) +
                  modelled.unit(0, unit, UnitTask::WeightGradients, 2),
              modelled.unit(0, unit, UnitTask::Backward, 2));
}

TEST(GpuTimes, OldGpusKeepScoresInMemory) {
  const bundle::ModelSummary summary = llama("f16");
  const CostModel old = costs(summary, one("type: V100-32")),
                  recent = costs(summary, one("type: A100-80"));
  EXPECT_EQ(old.source(0).find("attention"), std::string::npos);
  EXPECT_GT(old.unit(0, 1, UnitTask::Forward, 4) / recent.unit(0, 1, UnitTask::Forward, 4),
            271.0 / 90);
}

TEST(GpuTimes, EagerIsSlower) {
  const bundle::ModelSummary summary = llama();
  const CostModel ours = costs(summary, one("type: A100-80")),
                  eager = costs(summary, one("type: A100-80, execution_mode: eager"));
  EXPECT_DOUBLE_EQ(eager.unit(0, 1, UnitTask::Forward, 4),
                   1.5 * ours.unit(0, 1, UnitTask::Forward, 4));
  EXPECT_DOUBLE_EQ(eager.unit(0, 1, UnitTask::Forward, 100),
                   1.5 * ours.unit(0, 1, UnitTask::Forward, 100));
  EXPECT_DOUBLE_EQ(eager.update(0, {1 << 20}), 1.5 * ours.update(0, {1 << 20}));
  EXPECT_NE(eager.source(0).find("multiplied by 1.5"), std::string::npos) << eager.source(0);
}

TEST(GpuTimes, TunedIsBetweenCompiledAndEager) {
  const bundle::ModelSummary summary = llama();
  const CostModel ours = costs(summary, one("type: A100-80")),
                  tuned = costs(summary, one("type: A100-80, execution_mode: tuned")),
                  eager = costs(summary, one("type: A100-80, execution_mode: eager"));
  for (UnitTask task : {UnitTask::Forward, UnitTask::Backward})
    for (int64_t rows : {1, 4, 100}) {
      EXPECT_DOUBLE_EQ(tuned.unit(0, 1, task, rows), kTunedTimes * ours.unit(0, 1, task, rows));
      EXPECT_LT(tuned.unit(0, 1, task, rows), eager.unit(0, 1, task, rows));
    }
  EXPECT_DOUBLE_EQ(tuned.update(0, {1 << 20}), kTunedTimes * ours.update(0, {1 << 20}));
  EXPECT_NE(tuned.source(0).find("(tuned)"), std::string::npos) << tuned.source(0);
  EXPECT_EQ(ours.source(0).find("multiplied"), std::string::npos) << ours.source(0);
}

TEST(GpuTimes, ProfilesGoBefore) {
  const bundle::ModelSummary summary = llama();
  Profile profile;
  DeviceProfile device;
  device.device = "A100-80";
  device.classes["block attention"] = {{1, {{1, 0.5, 1.0}, {4, 1.5, 3.0}}}};
  profile.devices.push_back(device);
  const Cluster cluster = one("type: A100-80");
  const CostModel part = costs(summary, cluster, &profile), plain = costs(summary, cluster);
  EXPECT_DOUBLE_EQ(part.unit(0, 1, UnitTask::Forward, 4), 1.5);
  EXPECT_GT(part.unit(0, 2, UnitTask::Forward, 4),
            10 * plain.unit(0, 2, UnitTask::Forward, 4)); // proportional
  EXPECT_EQ(part.source(0).find(
                "measured (profile) for 1 of 4 classes of units; in proportion to these, modeled"),
            0u)
      << part.source(0);
  for (const char *name : {"embedding", "block mlp", "head"})
    profile.devices[0].classes[name] = device.classes["block attention"];
  EXPECT_EQ(costs(summary, cluster, &profile).source(0), "measured (profile)");
}

TEST(GpuTimes, WithoutWorkInTheSummaryARoofline) {
  bundle::ModelSummary summary = llama();
  summary.clear_gpu_targets();
  EXPECT_EQ(costs(summary, one("type: A100-80")).source(0).find("a roofline"), 0u);
}

} // namespace
