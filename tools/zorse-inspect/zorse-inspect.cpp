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

} // namespace

int main(int argc, char **argv) {
  zorse::runtime::openStandardStreams();
  CLI::App app("Shows the contents of a bundle: an overview, or one of the views below.");
  std::string directory, program, memory, svg;
  bool plan = false, timeline = false, functions = false, kernels = false;
  KernelQuery asked;
  app.add_option("bundle", directory, "bundle directory written by zorse-compile")->required();
  app.add_flag("--plan", plan, "diagram of the tiling of units x samples");
  app.add_option("--program", program, "program of a device (name or number) as text");
  CLI::Option *memoryOption =
      app.add_option("--memory", memory, "memory map of a device (name or number) over the step");
  app.add_option("--svg", svg, "with --memory: write the map to this SVG file")
      ->needs(memoryOption);
  app.add_flag("--timeline", timeline, "planned times of every queue");
  app.add_flag("--functions", functions, "kernel launches of every function");
  CLI::Option *kernelsOption = app.add_flag(
      "--kernels", kernels,
      "resource use of every generated GPU kernel, slowest first (docs/internals/codegen-cuda.md)");
  CLI::Option *archOption =
      app.add_option("--arch", asked.arch,
                     "with --kernels: only kernels for this architecture, such as sm_80")
          ->needs(kernelsOption);
  app.add_option("--device", asked.device,
                 "with --kernels: only kernels of a device (name or number)")
      ->needs(kernelsOption)
      ->excludes(archOption);
  app.add_option("--gpu", asked.gpu,
                 "with --kernels: GPU type with the memory bandwidth to assume, such as A100-80")
      ->needs(kernelsOption);
  app.add_option("--batch-size", asked.rows,
                 "with --kernels: samples per call of a unit (default: as in the programs)")
      ->needs(kernelsOption)
      ->check(CLI::Range(int64_t(1), int64_t(1) << 40));
  app.add_option("--ptxas", asked.assembler,
                 "with --kernels: path of NVIDIA's assembler (default: $PTXAS, the one that "
                 "tools/ptxas.sh downloaded, or the one on the PATH)")
      ->needs(kernelsOption);
  if (std::optional<int> done = parseFlags(app, argc, argv, "zorse-inspect"))
    return *done;

  if (runtime::Status status =
          runtime::checkOverwrites({{"the bundle", directory}}, {{"--svg", svg}});
      status.failed())
    return fail(status.message());
  Result<bundle::BundleView> bundle = bundle::readBundle(directory);
  if (bundle.failed())
    return fail(bundle.message());
  Result<step::Plan> parsed = step::readPlan(bundle->plan, bundle->summary);
  Status status = parsed.failed() ? Status(parsed.error())
                                  : step::validatePlan(*parsed, bundle->summary);
  if (status.failed())
    return fail(directory + "/plan.json: " + status.message());
  if (parsed->devices.size() != bundle->devices.size())
    return fail(directory + ": plan.json has " + std::to_string(parsed->devices.size()) +
                " devices and manifest.json " + std::to_string(bundle->devices.size()));
  InspectedBundle what{*bundle, *parsed, {}};
  for (size_t d = 0; d < bundle->devices.size(); ++d) {
    Result<bundle::Program> read = bundle::readProgram(*bundle, static_cast<int>(d));
    if (read.failed())
      return fail(read.message());
    what.programs.push_back(std::move(*read));
  }
  if (const std::string &name = program.empty() ? memory : program; !name.empty()) {
    const int device = bundle->findDevice(name);
    if (device < 0) {
      std::string known;
      for (const auto &d : bundle->devices)
        known += " " + d.name;
      return fail("expected a device of the bundle, got '" + name + "'. Devices:" + known);
    }
    if (!program.empty())
      status = printProgram(what, device);
    else
      status = printMemory(what, device, svg);
    return status.failed() ? fail(status.message()) : 0;
  }
  if (plan)
    printPlan(what);
  if (timeline)
    printTimeline(what);
  if (functions)
    printFunctions(*bundle);
  if (status = kernels ? printKernels(what, asked) : Status::success(); status.failed())
    return fail(status.message());
  if (!plan && !timeline && !functions && !kernels)
    printOverview(what);
  return 0;
}
