// Tests an exchange inside a cell of two devices: a gather and a reduction of values of one unit,
// between segments of its functions. lib/Step makes the programs. They are verified, changed in
// ways that the verifier must detect, and executed.
#include "ToyExchange.h"

#include "../../runtime/TemporaryDirectory.h"

#include "zorse/Step/Plan.h"
#include "zorse/Step/Schedules.h"
#include "zorse/Step/WriteProgram.h"
#include "zorse/Verify/Verify.h"
#include "zorse/runtime/CpuDevice.h"
#include "zorse/runtime/Executor.h"
#include "zorse/runtime/Safetensors.h"
#include "zorse/runtime/State.h"
#include "zorse/runtime/Training.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>

using namespace zorse;
using namespace zorse::test;
using bundle::Instruction;
using verify::Code;

namespace {

constexpr int64_t kBatch = 8;
using Programs = std::vector<bundle::Program>;

/// Two micro-batches. \param scale, loss  devices of the first and the last unit. \param pairs
/// devices of the two units in between
step::Plan planOf(uint32_t devices, uint32_t scale, const std::vector<uint32_t> &pairs,
                  uint32_t loss) {
  step::Plan plan;
  plan.model = "toy";
  plan.batch = kBatch;
  for (uint32_t d = 0; d < devices; ++d)
    plan.devices.push_back({"d" + std::to_string(d), 1e9, 0, ""});
  for (int64_t sample = 0; sample < kBatch; sample += kBatch / 2) {
    plan.cells.push_back({0, 1, sample, sample + kBatch / 2, scale});
    for (uint32_t device : pairs)
      plan.cells.push_back({1, 3, sample, sample + kBatch / 2, device});
    plan.cells.push_back({3, 4, sample, sample + kBatch / 2, loss});
  }
  return plan;
}

step::Plan twoDevices() { return planOf(2, 0, {0, 1}, 1); }

Result<Programs> programsOf(const ToyExchange &toy, const step::Plan &plan) {
  step::LoweringOptions expand;
  expand.functions = &toy.functions;
  auto graph = step::lowerPlan(toy.summary, plan, expand);
  if (graph.failed())
    return graph.error();
  Programs programs;
  for (uint32_t device = 0; device < plan.devices.size(); ++device) {
    auto program = step::writeProgram(*graph, device, toy.functions);
    if (program.failed())
      return program.error();
    programs.push_back(*program);
  }
  return programs;
}

/// Findings of the verifier, with the plan read from its file text.
std::vector<verify::Finding> findings(const ToyExchange &toy, const step::Plan &plan,
                                      const Programs &programs, std::string *text = nullptr) {
  auto view = verify::readPlanView(step::writePlan(plan, toy.summary));
  EXPECT_FALSE(view.failed()) << view.message();
  auto list = verify::verifyPrograms(toy.summary, toy.functions, *view, programs);
  for (const verify::Finding &finding : list)
    if (text)
      *text += verify::toString(finding, *view) + "\n";
  return list;
}

/// Samples of numbers from -1 to 1.
class Samples final : public runtime::DataSource {
public:
  Result<std::shared_ptr<const runtime::Batch>> batchOf(uint64_t first, uint64_t) override {
    auto batch = std::make_shared<runtime::Batch>();
    batch->inputs.emplace_back(kBatch * ToyExchange::kRow);
    for (int64_t i = 0; i < kBatch * ToyExchange::kWidth; ++i) {
      const float value = float(int((first * 16 + uint64_t(i)) * 7 % 33) - 16) / 16;
      std::memcpy(batch->inputs[0].data() + i * 4, &value, 4);
    }
    return std::shared_ptr<const runtime::Batch>(batch);
  }
  uint64_t samplesPerEpoch() const override { return 3 * kBatch; }
};

/// The observable results of a run.
struct Trained {
  std::vector<double> losses; ///< losses of steps and evaluations
  std::vector<float> numbers; ///< parameters a, then w
  bool operator==(const Trained &o) const { return losses == o.losses && numbers == o.numbers; }
};

class ToyExchanges : public ::testing::Test {
protected:
  Trained train(const ToyExchange &toy, const step::Plan &plan, const Programs &programs) {
    namespace files = std::filesystem;
    runtime::Bundle bundle;
    bundle.directory = directory.path("toy.zorse");
    const std::string kernels = bundle.directory + "/kernels";
    bundle.kernels = kernels;
    bundle.model = "toy";
    bundle.precision = "f32";
    bundle.batch = kBatch;
    bundle.sequence = ToyExchange::kWidth;
    for (const step::PlanDevice &device : plan.devices)
      bundle.devices.push_back({device.name, "cpu", 1, 0});
    bundle.plan = step::writePlan(plan, toy.summary);
    bundle.summary = toy.summary;
    bundle.functions = toy.functions;
    bundle.programs = programs;
    files::create_directories(kernels + "/x86-64");
    files::copy_file(ZORSE_TOY_KERNELS, kernels + "/x86-64/toy.so",
                     files::copy_options::overwrite_existing);
    std::string weights;
    for (const auto &parameter : toy.summary.parameters()) {
      runtime::WeightSource source;
      source.name = parameter.name();
      source.file = bundle.directory + "/weights.bin";
      source.offset = weights.size();
      source.bytes = ToyExchange::kRow;
      source.type = "f32";
      source.shape = {ToyExchange::kWidth};
      bundle.weights.push_back(source);
      for (int64_t j = 0; j < ToyExchange::kWidth; ++j) {
        const float value = float(j % 5 + 1) / 4;
        weights.append(reinterpret_cast<const char *>(&value), 4);
      }
    }
    directory.write("toy.zorse/weights.bin", weights);
    Status checked = runtime::checkPrograms(bundle);
    EXPECT_TRUE(checked.succeeded()) << checked.message();
    EXPECT_TRUE(runtime::verifyBundle(bundle, 1).succeeded());
    return run(bundle);
  }

  Trained run(const runtime::Bundle &bundle) {
    Trained trained;
    auto transports = runtime::makeLocalTransports(uint32_t(bundle.devices.size()));
    std::vector<runtime::LocalDevice> locals;
    for (uint32_t d = 0; d < bundle.devices.size(); ++d) {
      auto device = runtime::CpuDevice::create({});
      EXPECT_FALSE(device.failed()) << device.message();
      locals.push_back({d, runtime::withThreads(std::move(*device)), std::move(transports[d])});
    }
    runtime::ExecutorOptions options;
    options.poison = true;
    auto executor = runtime::Executor::create(bundle, std::move(locals), options);
    EXPECT_FALSE(executor.failed()) << executor.message();
    if (executor.failed())
      return trained;
    EXPECT_TRUE(runtime::loadState(**executor, bundle, "").succeeded());
    Samples data, held;
    runtime::TrainingRun run;
    run.steps = 6;
    run.options = bundle.summary.training();
    run.data = &data;
    run.evaluationData = &held;
    run.evaluateEvery = 3;
    run.report = [&](const runtime::StepReport &report) { trained.losses.push_back(report.loss); };
    auto end = runtime::train(**executor, bundle, run);
    EXPECT_FALSE(end.failed()) << end.message();
    const std::string path = directory.path("checkpoint.safetensors");
    EXPECT_TRUE(runtime::saveWeights(**executor, bundle, path).succeeded());
    auto file = runtime::SafetensorsFile::open(path);
    EXPECT_FALSE(file.failed()) << file.message();
    for (const char *name : {"a", "w"}) {
      const auto *numbers = reinterpret_cast<const float *>(file->tensors().at(name).data);
      trained.numbers.insert(trained.numbers.end(), numbers, numbers + ToyExchange::kWidth);
    }
    return trained;
  }

  runtime::test::TemporaryDirectory directory;
};

TEST_F(ToyExchanges, TrainAsOneDeviceDoes) {
  const ToyExchange whole(/*exchanges=*/false), toy(/*exchanges=*/true);
  const step::Plan alone = planOf(1, 0, {0}, 0);
  auto expected = programsOf(whole, alone);
  ASSERT_FALSE(expected.failed()) << expected.message();
  const Trained one = train(whole, alone, *expected);
  ASSERT_EQ(one.losses.size(), 8u);
  for (float number : one.numbers)
    ASSERT_TRUE(std::isfinite(number));
  EXPECT_NE(one.losses[1], one.losses[4]);

  int runs = 0;
  for (const step::Plan &tiling : {twoDevices(), planOf(3, 0, {1, 2}, 0), planOf(4, 3, {2, 0}, 1)})
    for (const step::ScheduleRule *rule : step::namedSchedules()) {
      step::Plan plan = tiling;
      plan.schedule.kind = rule->kind;
      if (!rule->whyUnsupported(plan, toy.summary).empty())
        continue;
      SCOPED_TRACE(std::string(rule->name) + ", " + std::to_string(plan.devices.size()) +
                   " devices");
      auto programs = programsOf(toy, plan);
      ASSERT_FALSE(programs.failed()) << programs.message();
      std::string text;
      EXPECT_TRUE(findings(toy, plan, *programs, &text).empty()) << text;
      EXPECT_EQ(train(toy, plan, *programs), one);
      ++runs;
    }
  EXPECT_GE(runs, 9) << "three schedules at least take every tiling";
}

// ---- Faults.

template <typename Wanted> Instruction *find(bundle::Program &program, Wanted wanted, int nth = 0) {
  for (Instruction &instruction : *program.mutable_instructions())
    if (wanted(instruction) && nth-- == 0)
      return &instruction;
  ADD_FAILURE() << "no such instruction";
  return program.mutable_instructions(0);
}
bool isGather(const Instruction &instruction) {
  return instruction.has_all_gather() &&
         instruction.all_gather().value().kind() == bundle::Value::ACTIVATION;
}
bool isReduction(const Instruction &instruction) {
  return instruction.has_reduce_scatter() &&
         instruction.reduce_scatter().value().kind() == bundle::Value::ACTIVATION;
}
void erase(bundle::Program &program, const Instruction *instruction) {
  const uint32_t id = instruction->id(), queue = instruction->queue();
  uint32_t position = 0;
  for (int e = 0; e < program.instructions_size(); ++e) {
    if (program.instructions(e).id() == id) {
      program.mutable_instructions()->DeleteSubrange(e, 1);
      break;
    }
    position += program.instructions(e).queue() == queue;
  }
  for (Instruction &other : *program.mutable_instructions()) { // its waiters now wait for the
                                                               // previous instruction of its queue
    auto &waits = *other.mutable_waits();
    if (position == 0)
      waits.erase(std::remove_if(waits.begin(), waits.end(),
                                 [&](const auto &wait) {
                                   return wait.queue() == queue && wait.position() == 0;
                                 }),
                  waits.end());
    for (auto &wait : waits)
      if (wait.queue() == queue && wait.position() >= position)
        wait.set_position(wait.position() - 1);
  }
}

class Faults : public ToyExchanges {
protected:
  Faults() : toy(/*exchanges=*/true), plan(twoDevices()), good(*programsOf(toy, plan)) {}

  /// \param nth  index of the exchange
  static bundle::AllGather *gather(bundle::Program &program, int nth = 0) {
    return find(program, isGather, nth)->mutable_all_gather();
  }
  static bundle::ReduceScatter *reduction(bundle::Program &program) {
    return find(program, isReduction)->mutable_reduce_scatter();
  }

  /// The n-th instruction of a program with a call of a function.
  Instruction *calling(bundle::Program &program, const std::string &function, int nth = 0) const {
    return find(
        program,
        [&](const Instruction &instruction) {
          for (const bundle::Call &call : instruction.compute().calls())
            if (toy.functions.functions(int(call.function())).name() == function)
              return true;
          return false;
        },
        nth);
  }

  void expectFound(const char *fault, std::initializer_list<Code> codes,
                   const std::function<void(Programs &)> &change) {
    SCOPED_TRACE(fault);
    Programs programs = good;
    change(programs);
    std::string text;
    bool found = false;
    for (const verify::Finding &finding : findings(toy, plan, programs, &text))
      found |= std::find(codes.begin(), codes.end(), finding.code) != codes.end();
    EXPECT_TRUE(found) << "found:\n" << text;
  }

  const ToyExchange toy;
  const step::Plan plan;
  const Programs good;
};

TEST_F(Faults, OfGathersAreFound) {
  ASSERT_EQ(std::count_if(good[0].instructions().begin(), good[0].instructions().end(), isGather),
            4);
  expectFound("missing on one device", {Code::Unmatched},
              [](Programs &p) { erase(p[1], find(p[1], isGather)); });
  expectFound("missing on both", {Code::Undefined}, [](Programs &p) {
    for (auto &program : p)
      erase(program, find(program, isGather));
  });
  expectFound("another extent on one device", {Code::Mismatched},
              [](Programs &p) { gather(p[0])->mutable_shards()->set_end(0, 48); });
  expectFound("another extent on both", {Code::Undefined},
              [](Programs &p) { // three rows of the first device, which has computed only two
                for (auto &program : p) {
                  gather(program)->mutable_shards()->set_end(0, 48);
                  gather(program)->mutable_shards()->set_begin(1, 48);
                }
                gather(p[0])->mutable_shard()->set_bytes(3 * ToyExchange::kRow);
                gather(p[1])->mutable_shard()->set_bytes(ToyExchange::kRow);
                gather(p[1])->mutable_shard()->set_offset(gather(p[1])->shard().offset() +
                                                          ToyExchange::kRow);
              });
  expectFound("cut inside a row", {Code::Mismatched}, [](Programs &p) {
    for (auto &program : p) {
      gather(program)->mutable_shards()->set_end(0, 36);
      gather(program)->mutable_shards()->set_begin(1, 36);
    }
  });
  expectFound("a row that no device provides", {Code::Mismatched}, [](Programs &p) {
    for (auto &program : p)
      gather(program)->mutable_shards()->set_begin(1, 48);
    gather(p[1])->mutable_shard()->set_bytes(ToyExchange::kRow);
    gather(p[1])->mutable_shard()->set_offset(gather(p[1])->shard().offset() + ToyExchange::kRow);
  });
  expectFound("of the other micro-batch", {Code::Declared, Code::WrongValue}, [](Programs &p) {
    for (auto &program : p) {
      gather(program)->mutable_value()->set_begin(4);
      gather(program)->mutable_value()->set_end(8);
    }
  });
  expectFound("of the other unit", {Code::WrongValue}, [&](Programs &p) {
    const uint32_t other = toy.summary.units(2).values_out(ToyExchange::kSquares);
    for (auto &program : p) {
      gather(program)->mutable_value()->set_id(other);
      gather(program)->set_group(other);
    }
  });
  expectFound("not in evaluations", {Code::Undefined}, [](Programs &p) {
    for (auto &program : p)
      find(program, isGather)->set_phase(bundle::BACKWARD);
  });
}

TEST_F(Faults, OfSegmentsAreFound) {
  expectFound("used before the gather", {Code::Undefined},
              [&](Programs &p) { // the next call moves to the instruction before the gather
                auto &before = *calling(p[0], "pair.forward.0")->mutable_compute()->mutable_calls();
                auto &behind = *calling(p[0], "pair.forward.1")->mutable_compute()->mutable_calls();
                *before.Add() = behind[0];
                behind.DeleteSubrange(0, 1);
              });
  expectFound("no wait for the gather", {Code::Race},
              [&](Programs &p) { calling(p[0], "pair.forward.1")->clear_waits(); });
  expectFound("the gather does not wait", {Code::Race},
              [](Programs &p) { find(p[1], isGather)->clear_waits(); });
  expectFound("a segment left out", {Code::Call}, [&](Programs &p) {
    calling(p[1], "pair.forward.1")->mutable_compute()->mutable_calls()->RemoveLast();
  });
  expectFound("the other device's terms", {Code::Call}, [&](Programs &p) {
    for (auto &call : *calling(p[0], "toy_terms_0")->mutable_compute()->mutable_calls())
      if (toy.functions.functions(int(call.function())).name() == "toy_terms_0")
        call.set_function(call.function() + 1);
  });
  expectFound("the other device's rows", {Code::Call}, [&](Programs &p) {
    for (auto &call : *calling(p[0], "pair.forward.0")->mutable_compute()->mutable_calls())
      call.set_sample_base(2);
  });
}

TEST_F(Faults, OfReductionsAreFound) {
  expectFound("missing on one device", {Code::Unmatched},
              [](Programs &p) { erase(p[0], find(p[0], isReduction)); });
  expectFound("one contributor", {Code::Contributions}, [](Programs &p) {
    for (auto &program : p)
      reduction(program)->mutable_contributors()->RemoveLast();
    reduction(p[1])->clear_full();
  });
  expectFound("not the terms", {Code::Undefined, Code::WrongValue},
              [](Programs &p) { *reduction(p[0])->mutable_full() = reduction(p[0])->shard(); });
  expectFound("half the sum", {Code::Undefined}, [](Programs &p) {
    for (auto &program : p)
      reduction(program)->mutable_shards()->set_end(1, 32);
    reduction(p[1])->mutable_shard()->set_bytes(2 * ToyExchange::kRow);
  });
  expectFound("summed as one device has it", {Code::Declared},
              [&](Programs &p) { // the reduction declares the term instead of the sum
                for (auto &program : p) {
                  const uint32_t term = toy.summary.units(2).values_out(ToyExchange::kTerm);
                  reduction(program)->mutable_value()->set_id(term);
                  reduction(program)->set_group(term);
                }
              });
  expectFound("terms sent to the other device", {Code::Unsupported}, [&](Programs &p) {
    const uint32_t term = toy.summary.units(2).values_out(ToyExchange::kTerm);
    Instruction *send =
        find(p[0], [](const Instruction &instruction) { return instruction.has_send(); });
    Instruction *receive =
        find(p[1], [&](const Instruction &instruction) { return instruction.id() == send->id(); });
    send->mutable_send()->mutable_value()->set_id(term);
    receive->mutable_receive()->mutable_value()->set_id(term);
  });
}

TEST(ToyExchangePlans, AreRefused) {
  const ToyExchange toy(/*exchanges=*/true);
  auto problem = [&](const step::Plan &plan) {
    Status status = step::validatePlan(plan, toy.summary);
    auto view = verify::readPlanView(step::writePlan(plan, toy.summary));
    const auto found =
        verify::verifyPrograms(toy.summary, toy.functions, *view, Programs(plan.devices.size()));
    EXPECT_EQ(
        std::any_of(found.begin(), found.end(),
                    [](const verify::Finding &finding) { return finding.code == Code::Plan; }),
        status.failed());
    return status.failed() ? status.message() : std::string("accepted");
  };
  EXPECT_EQ(problem(twoDevices()), "accepted");
  EXPECT_NE(problem(planOf(1, 0, {0}, 0)).find("has 1 devices, expected 2"), std::string::npos);
  EXPECT_NE(problem(planOf(3, 0, {0, 1, 2}, 0)).find("has 3 devices, expected 2"),
            std::string::npos);
  EXPECT_NE(problem(planOf(2, 0, {1, 1}, 0)).find("overlaps"), std::string::npos);
  step::Plan loss = twoDevices();
  loss.cells.push_back({3, 4, 0, 4, 0});
  EXPECT_NE(problem(loss).find("unit 'loss' has 2 devices, expected 1"), std::string::npos);
  step::Plan recompute = twoDevices();
  for (step::Cell &cell : recompute.cells)
    cell.activations = step::Activations::Recompute;
  EXPECT_NE(problem(recompute).find("exchanges values inside the cell, which is not possible"),
            std::string::npos);
}

} // namespace
