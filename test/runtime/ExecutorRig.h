// Data and devices for the program of TwoDevices.h, for tests of the executor.
#pragma once

#include "TemporaryDirectory.h"
#include "TwoDevices.h"

#include "zorse/runtime/CpuDevice.h"
#include "zorse/runtime/Executor.h"
#include "zorse/runtime/Safetensors.h"
#include "zorse/runtime/State.h"
#include "zorse/runtime/Training.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace zorse::runtime::test {

/// Sample n of the run is a function of n.
class NumberedData final : public DataSource {
public:
  static float element(uint64_t sample, int j) {
    return float((sample * 7 + uint64_t(j) * 3) % 11) - 4.0f;
  }

  Result<std::shared_ptr<const Batch>> batchOf(uint64_t first, uint64_t samples,
                                               uint64_t) override {
    if (first == failAt)
      return userError("the data ends here");
    auto batch = std::make_shared<Batch>();
    batch->inputs.emplace_back(5 * 16);
    for (int row = 0; row < 5; ++row)
      for (int j = 0; j < 4; ++j) {
        float value = element(first + std::min<uint64_t>(row, samples - 1), j);
        std::memcpy(batch->inputs[0].data() + row * 16 + j * 4, &value, 4);
      }
    return std::shared_ptr<const Batch>(batch);
  }
  uint64_t samplesPerEpoch() const override { return 15; }

  uint64_t failAt = UINT64_MAX;
};

class ExecutorTest : public ::testing::Test {
protected:
  ExecutorTest() : two(directory.path("two.zorse")) {
    float weights[6] = {0, 0, 1, 2, 3, 4};
    directory.write("two.zorse/weights.bin",
                    std::string(reinterpret_cast<const char *>(weights), sizeof weights));
    std::filesystem::create_directories(directory.path("two.zorse/kernels/x86-64"));
    std::filesystem::copy_file(ZORSE_TEST_KERNELS,
                               directory.path("two.zorse/kernels/x86-64/kernels.so"));
  }

  std::vector<std::unique_ptr<Device>> makeDevices() {
    std::vector<std::unique_ptr<Device>> devices;
    for (const BundleDevice &described : two.bundle.devices) {
      CpuDeviceOptions options;
      options.name = described.name;
      options.threads = described.threads;
      auto device = CpuDevice::create(options);
      EXPECT_FALSE(device.failed()) << device.message();
      devices.push_back(std::move(*device));
    }
    return devices;
  }

  std::unique_ptr<Executor> make(const ExecutorOptions &options = {},
                                 std::vector<std::unique_ptr<Device>> devices = {},
                                 std::vector<std::unique_ptr<Transport>> transports = {}) {
    if (devices.empty())
      devices = makeDevices();
    if (transports.empty())
      transports = makeLocalTransports(2);
    std::vector<LocalDevice> locals;
    for (uint32_t i = 0; i < 2; ++i)
      locals.push_back({i, withThreads(std::move(devices[i])), std::move(transports[i])});
    auto executor = Executor::create(two.bundle, std::move(locals), options);
    EXPECT_FALSE(executor.failed()) << executor.message();
    if (executor.failed())
      return nullptr;
    Status loaded = loadState(**executor, two.bundle, "");
    EXPECT_FALSE(loaded.failed()) << loaded.message();
    return std::move(*executor);
  }

  TrainingRun training(uint64_t steps, std::vector<StepReport> &reports) {
    TrainingRun run;
    run.steps = steps;
    run.options = two.bundle.summary.training();
    run.data = &data;
    run.report = [&reports](const StepReport &report) { reports.push_back(report); };
    return run;
  }

  void expectTrained(const std::vector<StepReport> &reports, const Executor &executor,
                     double clip) {
    TwoDevicesReference reference;
    for (size_t i = 0; i < reports.size(); ++i) {
      float x[20];
      for (int e = 0; e < 20; ++e)
        x[e] = NumberedData::element(i * 5 + e / 4, e % 4);
      double norm, loss = reference.step(x, 0.5, clip, norm);
      EXPECT_NEAR(reports[i].loss, loss, 1e-5 * (1 + std::abs(loss))) << i;
      EXPECT_NEAR(reports[i].gradientNorm, norm, 1e-5 * norm) << i;
      EXPECT_EQ(reports[i].step, i + 1);
    }
    std::string path = directory.path("checkpoint.safetensors");
    ASSERT_FALSE(saveWeights(executor, two.bundle, path).failed());
    auto file = SafetensorsFile::open(path);
    ASSERT_FALSE(file.failed()) << file.message();
    const auto *w = reinterpret_cast<const float *>(file->tensors().at("w").data);
    for (int j = 0; j < 4; ++j)
      EXPECT_NEAR(w[j], reference.w[j], 1e-5 * (1 + std::abs(reference.w[j])));
  }

  TemporaryDirectory directory;
  TwoDevices two;
  NumberedData data;
};

} // namespace zorse::runtime::test
