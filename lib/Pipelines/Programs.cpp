#include "Programs.h"

#include "Diagnostics.h"

#include "zorse/Bundle/BundleWriter.h"
#include "zorse/Bundle/ProgramText.h"
#include "zorse/Step/WriteProgram.h"
#include "zorse/Verify/Verify.h"

#include <google/protobuf/arena.h>

#include <atomic>
#include <thread>

namespace zorse::pipelines {

namespace {

/// Bytes a thread keeps between programs, at most.
constexpr uint64_t kLargestBlock = 64 << 20;

/// A program is many small messages, on an arena whose first block serves one program after another. \param block  the thread's
bool buildProgram(const step::StepGraph &graph, uint32_t device, const bundle::ProgramNames &names, std::vector<char> &block, std::string &bytes,
                  std::string *text) {
  uint64_t used = 0;
  {
    google::protobuf::ArenaOptions memory;
    memory.initial_block = block.data();
    memory.initial_block_size = block.size();
    google::protobuf::Arena arena(memory);
    auto *program = google::protobuf::Arena::CreateMessage<bundle::Program>(&arena);
    if (Status status = step::writeProgram(graph, device, *names.bodies, *program); status.failed()) {
      printError(status.message());
      return false;
    }
    bytes = bundle::serialize(*program);
    if (text) {
      Result<std::string> shown = bundle::programText(*program, names);
      if (shown.failed()) {
        printError("program of device " + program->device_name() + ": " + shown.message());
        return false;
      }
      *text = std::move(*shown);
    }
    used = arena.SpaceAllocated();
  }
  if (used > block.size())
    block.resize(std::min(used, kLargestBlock));
  return true;
}

} // namespace

std::vector<std::string> buildPrograms(const step::StepGraph &graph, const bundle::ModelSummary &summary, const bundle::BodyLibrary &bodies,
                                       unsigned threads, const std::function<void(size_t, const std::string &)> &text) {
  bundle::ProgramNames names;
  names.summary = &summary;
  names.bodies = &bodies;
  for (const step::DeviceProgram &device : graph.devices)
    names.devices.push_back(device.name);
  std::vector<std::string> programs(graph.devices.size()), texts(text ? programs.size() : 0);
  std::atomic<uint32_t> next{0};
  std::atomic<bool> good{true};
  auto work = [&] {
    std::vector<char> block;
    for (uint32_t device; (device = next++) < programs.size();)
      if (!buildProgram(graph, device, names, block, programs[device], text ? &texts[device] : nullptr))
        good = false;
  };
  std::vector<std::thread> pool;
  for (unsigned i = 1; i < std::min<size_t>(threads, programs.size()); ++i)
    pool.emplace_back(work);
  work();
  for (std::thread &thread : pool)
    thread.join();
  if (!good)
    return {};
  for (size_t device = 0; device < texts.size(); ++device)
    text(device, texts[device]);
  return programs;
}

bool verifySerialized(const std::vector<std::string> &programs, const bundle::ModelSummary &summary, const bundle::BodyLibrary &bodies,
                      const std::string &planJson, unsigned threads, const std::vector<bool> &staged, const std::vector<int32_t> &direct) {
  Result<verify::PlanView> plan = verify::readPlanView(planJson);
  if (plan.failed()) {
    printError("verify: plan.json: " + plan.message());
    return false;
  }
  verify::VerifyOptions options;
  options.threads = threads;
  options.staged = staged;
  options.direct = direct;
  std::vector<verify::Finding> findings = verify::verifySerialized(summary, bodies, *plan, programs, options);
  for (const verify::Finding &finding : findings)
    printError(verify::toString(finding, *plan));
  return findings.empty();
}

} // namespace zorse::pipelines
