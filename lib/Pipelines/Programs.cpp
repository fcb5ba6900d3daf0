#include "Programs.h"

#include "Diagnostics.h"

#include "zorse/Bundle/BundleWriter.h"
#include "zorse/Step/WriteProgram.h"
#include "zorse/Verify/Verify.h"

#include <google/protobuf/arena.h>

#include <atomic>
#include <thread>

namespace zorse::pipelines {

namespace {

/// Maximum bytes that a thread keeps between programs.
constexpr uint64_t kLargestBlock = 64 << 20;

/// Builds a program in an arena, because it consists of many small messages. The first block of the
/// arena is reused for all programs.
/// \param block  the thread's first block
bool buildProgram(const step::StepGraph &graph, uint32_t device,
                  const bundle::FunctionLibrary &library, std::vector<char> &block,
                  std::string &bytes) {
  uint64_t used = 0;
  {
    google::protobuf::ArenaOptions memory;
    memory.initial_block = block.data();
    memory.initial_block_size = block.size();
    google::protobuf::Arena arena(memory);
    auto *program = google::protobuf::Arena::CreateMessage<bundle::Program>(&arena);
    if (Status status = step::writeProgram(graph, device, library, *program); status.failed()) {
      printError(status.message());
      return false;
    }
    bytes = bundle::serialize(*program);
    used = arena.SpaceAllocated();
  }
  if (used > block.size())
    block.resize(std::min(used, kLargestBlock));
  return true;
}

} // namespace

std::vector<std::string> buildPrograms(const step::StepGraph &graph,
                                       const bundle::FunctionLibrary &library, unsigned threads) {
  std::vector<std::string> programs(graph.devices.size());
  std::atomic<uint32_t> next{0};
  std::atomic<bool> good{true};
  auto work = [&] {
    std::vector<char> block;
    for (uint32_t device; (device = next++) < programs.size();)
      if (!buildProgram(graph, device, library, block, programs[device]))
        good = false;
  };
  std::vector<std::thread> pool;
  for (unsigned i = 1; i < std::min<size_t>(threads, programs.size()); ++i)
    pool.emplace_back(work);
  work();
  for (std::thread &thread : pool)
    thread.join();
  if (!good)
    programs.clear();
  return programs;
}

bundle::ProgramNames programNames(const step::Plan &plan, const bundle::ModelSummary &summary,
                                  const bundle::FunctionLibrary &library) {
  bundle::ProgramNames names;
  names.summary = &summary;
  names.functions = &library;
  for (const step::PlanDevice &device : plan.devices)
    names.devices.push_back(device.name);
  return names;
}

std::string programText(const std::string &program, const bundle::ProgramNames &names) {
  bundle::Program read;
  if (!read.ParseFromString(program))
    return {};
  Result<std::string> text = bundle::programText(read, names);
  if (text.failed())
    printError("program of device " + read.device_name() + ": " + text.message());
  return text.failed() ? "" : *text;
}

bool verifySerialized(const std::vector<std::string> &programs, const bundle::ModelSummary &summary,
                      const bundle::FunctionLibrary &library, const std::string &planJson,
                      unsigned threads, const std::vector<bool> &staged,
                      const std::vector<int32_t> &direct) {
  Result<verify::PlanView> plan = verify::readPlanView(planJson);
  if (plan.failed()) {
    printError("verify: plan.json: " + plan.message());
    return false;
  }
  verify::VerifyOptions options;
  options.threads = threads;
  options.hostStaged = staged;
  options.d2dGroups = direct;
  std::vector<verify::Finding> findings =
      verify::verifySerialized(summary, library, *plan, programs, options);
  for (const verify::Finding &finding : findings)
    printError(verify::toString(finding, *plan));
  return findings.empty();
}

} // namespace zorse::pipelines
