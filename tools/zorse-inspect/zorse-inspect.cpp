// zorse-inspect: shows the contents of a bundle as text and diagrams.
#include "Inspect.h"
#include "ParseFlags.h"

#include "zorse/Bundle/ProgramText.h"
#include "zorse/runtime/StandardStreams.h"

#include "zorse/runtime/Overwrites.h"

#include <cstdio>

using namespace zorse;
using namespace zorse::inspect;

namespace {

int fail(const std::string &message) {
  fprintf(stderr, "error: %s\n", message.c_str());
  return 1;
}

Status printProgram(const InspectedBundle &what, int device) {
  bundle::ProgramNames names;
  for (const auto &d : what.bundle.devices)
    names.devices.push_back(d.name);
  names.summary = &what.bundle.summary;
  names.functions = &what.bundle.functions;
  Result<std::string> text = bundle::programText(what.programs[device], names);
  if (text.failed())
    return text.error();
  fputs(text->c_str(), stdout);
  return Status::success();
}

/// What the command line asks for.
struct Request {
  std::string directory, program, memory, svg;
  bool plan = false, timeline = false, functions = false, kernels = false;
  KernelQuery asked;
};

void addOptions(CLI::App &app, Request &request) {
  app.add_option("bundle", request.directory, "bundle directory written by zorse-compile")
      ->required();
  app.add_flag("--plan", request.plan, "diagram of the tiling of units x samples");
  app.add_option("--program", request.program, "program of a device (name or number) as text");
  CLI::Option *memoryOption = app.add_option(
      "--memory", request.memory, "memory map of a device (name or number) over the step");
  app.add_option("--svg", request.svg, "with --memory: write the map to this SVG file")
      ->needs(memoryOption);
  app.add_flag("--timeline", request.timeline, "planned times of every queue");
  app.add_flag("--functions", request.functions, "kernel launches of every function");
  CLI::Option *kernelsOption = app.add_flag(
      "--kernels", request.kernels,
      "resource use of every generated GPU kernel, slowest first (docs/internals/codegen-cuda.md)");
  CLI::Option *archOption =
      app.add_option("--arch", request.asked.arch,
                     "with --kernels: only kernels for this architecture, such as sm_80")
          ->needs(kernelsOption);
  app.add_option("--device", request.asked.device,
                 "with --kernels: only kernels of a device (name or number)")
      ->needs(kernelsOption)
      ->excludes(archOption);
  app.add_option("--gpu", request.asked.gpu,
                 "with --kernels: GPU type with the memory bandwidth to assume, such as A100-80")
      ->needs(kernelsOption);
  app.add_option("--batch-size", request.asked.rows,
                 "with --kernels: samples per call of a unit (default: as in the programs)")
      ->needs(kernelsOption)
      ->check(CLI::Range(int64_t(1), int64_t(1) << 40));
  app.add_option("--ptxas", request.asked.assembler,
                 "with --kernels: path of NVIDIA's assembler (default: $PTXAS, the one that "
                 "tools/ptxas.sh downloaded, or the one on the PATH)")
      ->needs(kernelsOption);
}

/// Prints the requested views, or the overview if there are none.
Status print(const InspectedBundle &what, const Request &request) {
  if (const std::string &name = request.program.empty() ? request.memory : request.program;
      !name.empty()) {
    const int device = what.bundle.findDevice(name);
    if (device < 0) {
      std::string known;
      for (const auto &d : what.bundle.devices)
        known += " " + d.name;
      return userError("expected a device of the bundle, got '" + name + "'. Devices:" + known);
    }
    return request.program.empty() ? printMemory(what, device, request.svg)
                                   : printProgram(what, device);
  }
  if (request.plan)
    printPlan(what);
  if (request.timeline)
    printTimeline(what);
  if (request.functions)
    printFunctions(what.bundle);
  if (request.kernels)
    if (Status status = printKernels(what, request.asked); status.failed())
      return status;
  if (!request.plan && !request.timeline && !request.functions && !request.kernels)
    printOverview(what);
  return Status::success();
}

} // namespace

int main(int argc, char **argv) {
  zorse::runtime::openStandardStreams();
  CLI::App app("Shows the contents of a bundle: an overview, or one of the views below.");
  Request request;
  addOptions(app, request);
  if (std::optional<int> done = parseFlags(app, argc, argv, "zorse-inspect"))
    return *done;

  if (runtime::Status status =
          runtime::checkOverwrites({{"the bundle", request.directory}}, {{"--svg", request.svg}});
      status.failed())
    return fail(status.message());
  Result<bundle::BundleView> bundle = bundle::readBundle(request.directory);
  if (bundle.failed())
    return fail(bundle.message());
  Result<step::Plan> parsed = step::readPlan(bundle->plan, bundle->summary);
  Status status = parsed.failed() ? Status(parsed.error())
                                  : step::validatePlan(*parsed, bundle->summary);
  if (status.failed())
    return fail(request.directory + "/plan.json: " + status.message());
  if (parsed->devices.size() != bundle->devices.size())
    return fail(request.directory + ": plan.json has " + std::to_string(parsed->devices.size()) +
                " devices and manifest.json " + std::to_string(bundle->devices.size()));
  InspectedBundle what{*bundle, *parsed, {}};
  for (size_t d = 0; d < bundle->devices.size(); ++d) {
    Result<bundle::Program> read = bundle::readProgram(*bundle, static_cast<int>(d));
    if (read.failed())
      return fail(read.message());
    what.programs.push_back(std::move(*read));
  }
  status = print(what, request);
  return status.failed() ? fail(status.message()) : 0;
}
