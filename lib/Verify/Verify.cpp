#include "Device.h"

#include <google/protobuf/arena.h>

#include <atomic>
#include <functional>
#include <thread>

using namespace zorse;
using namespace zorse::verify;

/// Maximum bytes that a thread keeps between programs.
static constexpr uint64_t kLargestBlock = 64 << 20;

void Device::run() {
  result.device = int32_t(program.device());
  collectLaunches();
  if (!checkStructure() || !result.findings.empty())
    return;
  result.present = true;
  for (const auto &state : program.state())
    if (state.value().kind() == bundle::Value::PARAMETERS && model.trainable(state.value().id()))
      result.owned.push_back({state.value().id(), state.value().begin(), state.value().end()});
  collectHalves();
  checkTasks();
  if (!result.findings.empty())
    return;
  checkRaces();
  replayValues(*this);
}

/// Memory of one thread, reused from program to program.
using Memory = std::vector<char>;

/// \param visit  calls its argument with program i, or with null if it cannot be parsed. It is
///   called from several threads, each with its own block.
static std::vector<Finding>
verifyEach(const bundle::ModelSummary &summary, const bundle::FunctionLibrary &functions,
           const PlanView &plan, size_t count,
           const std::function<void(size_t, Memory &,
                                    const std::function<void(const bundle::Program *)> &)> &visit,
           const VerifyOptions &options) {
  std::vector<Finding> findings;
  Model model(summary, functions, plan, findings);
  if (!findings.empty())
    return findings;

  std::vector<DeviceResult> results(count);
  std::atomic<size_t> next{0};
  auto work = [&] {
    Memory block;
    for (size_t i; (i = next++) < count;) {
      visit(i, block, [&](const bundle::Program *program) {
        if (program)
          Device(model, *program, options, results[i]).run();
        else
          results[i].findings.push_back(
              {Code::Malformed, -1, -1, "program " + std::to_string(i) + " cannot be read"});
      });
    }
  };
  std::vector<std::thread> threads;
  for (unsigned t = 1; t < options.threads && t < count; ++t)
    threads.emplace_back(work);
  work();
  for (auto &thread : threads)
    thread.join();

  checkLaunches(model, results, findings);
  std::vector<bool> present(plan.devices.size());
  bool sound = true;
  for (size_t i = 0; i < count; ++i) {
    findings.insert(findings.end(), results[i].findings.begin(), results[i].findings.end());
    sound = sound && results[i].present;
    if (!results[i].present)
      continue;
    if (present[results[i].device]) {
      findings.push_back({Code::Malformed, results[i].device, -1, "has two programs"});
      sound = false;
    }
    present[results[i].device] = true;
  }
  for (size_t d = 0; d < present.size(); ++d)
    if (!present[d] && count < present.size()) {
      findings.push_back({Code::Malformed, int32_t(d), -1, "has no program"});
      sound = false;
    }
  if (sound)
    checkMatching(model, results, findings);
  std::stable_sort(findings.begin(), findings.end(), [](const Finding &a, const Finding &b) {
    return a.device != b.device ? a.device < b.device : a.instruction < b.instruction;
  });
  return findings;
}

std::vector<Finding> verify::verifyPrograms(const bundle::ModelSummary &summary,
                                            const bundle::FunctionLibrary &functions,
                                            const PlanView &plan,
                                            const std::vector<bundle::Program> &programs,
                                            const VerifyOptions &options) {
  auto visit = [&](size_t i, Memory &, const auto &check) { check(&programs[i]); };
  return verifyEach(summary, functions, plan, programs.size(), visit, options);
}

std::vector<Finding> verify::verifySerialized(const bundle::ModelSummary &summary,
                                              const bundle::FunctionLibrary &functions,
                                              const PlanView &plan,
                                              const std::vector<std::string> &programs,
                                              const VerifyOptions &options) {
  // A program consists of many small messages: an arena allocates and frees them together.
  auto visit = [&](size_t i, Memory &block,
                   const std::function<void(const bundle::Program *)> &check) {
    uint64_t used = 0;
    {
      google::protobuf::ArenaOptions memory;
      memory.initial_block = block.data();
      memory.initial_block_size = block.size();
      google::protobuf::Arena arena(memory);
      auto *program = google::protobuf::Arena::CreateMessage<bundle::Program>(&arena);
      check(program->ParseFromString(programs[i]) ? program : nullptr);
      used = arena.SpaceAllocated();
    }
    if (used > block.size())
      block.resize(std::min<uint64_t>(used, kLargestBlock));
  };
  return verifyEach(summary, functions, plan, programs.size(), visit, options);
}
