// zorse-plan: a plan for a model summary and a cluster, as a picture and as plan.json.

#include "zorse/Planning/Cluster.h"
#include "zorse/Planning/DefaultPlan.h"
#include "zorse/Planning/Report.h"
#include "zorse/Step/Plan.h"
#include "zorse/Step/RandomPlan.h"
#include "zorse/Step/StepGraph.h"

#include "bundle.pb.h"

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <map>
#include <string>

using namespace zorse;

namespace {

const char *const kHelp = R"(usage: zorse-plan --summary=summary.pb --cluster=cluster.yaml --batch=N [options]
       zorse-plan --summary=summary.pb --plan=plan.json [--cluster=cluster.yaml]
       zorse-plan --summary=summary.pb --random=SEED --devices=N --batch=N

Chooses a plan (or reads, or draws one), expands and simulates it, and prints its picture, the memory of every device and the predicted time of a step.

  --summary=FILE      the model, as a bundle holds it (zorse-compile writes it)
  --cluster=FILE      nodes, devices, links (docs/cluster.md)
  --batch=N           samples per step
  --plan=FILE         describe this plan instead of choosing one (docs/plan.md)
  --random=SEED       draw a random valid plan, for tests
  --devices=N         with --random: number of devices
  --stages=N          number of pipeline stages (default: chosen)
  --microbatch=N      most rows of a cell (default: chosen)
  --schedule=NAME     1f1b (default) or gpipe
  -o FILE             write plan.json
  --quiet             no picture
)";

int fail(const std::string &message) {
  size_t begin = 0;
  while (begin <= message.size()) {
    size_t end = std::min(message.find('\n', begin), message.size());
    std::string line = message.substr(begin, end - begin);
    std::cerr << (line.rfind("  ", 0) == 0 ? "" : "error: ") << line << "\n";
    begin = end + 1;
  }
  return 1;
}

bool toInteger(const std::string &text, uint64_t most, uint64_t &number) {
  if (text.empty() || text.size() > 19 || text.find_first_not_of("0123456789") != std::string::npos)
    return false;
  number = std::stoull(text);
  return number <= most;
}

} // namespace

int main(int argc, char **argv) {
  std::map<std::string, std::string> options;
  const char *const known[] = {"--summary", "--cluster", "--batch", "--plan", "--random", "--devices", "--stages", "--microbatch", "--schedule", "-o", "--quiet"};
  for (int i = 1; i < argc; ++i) {
    std::string argument = argv[i];
    if (argument == "--help" || argument == "-h") {
      std::cout << kHelp;
      return 0;
    }
    size_t equals = argument.find('=');
    std::string key = argument.substr(0, equals), value = equals == std::string::npos ? "" : argument.substr(equals + 1);
    bool isKnown = false;
    for (const char *k : known)
      isKnown |= key == k;
    if (!isKnown)
      return fail("unknown option '" + argument + "'; see --help");
    if (equals == std::string::npos && key != "--quiet") {
      if (i + 1 == argc)
        return fail("option " + key + " expects a value");
      value = argv[++i];
    }
    options[key] = value;
  }
  std::map<std::string, uint64_t> numbers;
  for (const char *key : {"--batch", "--random", "--devices", "--stages", "--microbatch"})
    if (options.count(key) && !toInteger(options[key], key == std::string("--random") ? UINT64_MAX : 1u << 30, numbers[key]))
      return fail(std::string(key) + " expects a whole number, got '" + options[key] + "'");

  if (!options.count("--summary"))
    return fail("--summary is missing; see --help");
  bundle::ModelSummary summary;
  {
    std::ifstream file(options["--summary"], std::ios::binary);
    if (!file)
      return fail(options["--summary"] + ": cannot read the file");
    if (!summary.ParseFromIstream(&file) || summary.units_size() == 0)
      return fail(options["--summary"] + ": not a model summary");
  }

  std::string error;
  std::optional<planning::Cluster> cluster;
  if (options.count("--cluster") && !(cluster = planning::readClusterFile(options["--cluster"], error)))
    return fail(error);
  step::ScheduleKind schedule = step::ScheduleKind::OneForwardOneBackward;
  if (options.count("--schedule")) {
    if (options["--schedule"] != "1f1b" && options["--schedule"] != "gpipe")
      return fail("--schedule expects 1f1b or gpipe, got '" + options["--schedule"] + "'");
    if (options["--schedule"] == "gpipe")
      schedule = step::ScheduleKind::GPipe;
  }

  std::optional<step::Plan> plan;
  if (options.count("--plan")) {
    plan = step::readPlanFile(options["--plan"], summary, error);
    if (plan && cluster && !planning::applyCluster(*plan, *cluster, error))
      return fail(options["--plan"] + ": " + error);
  } else if (numbers["--batch"] == 0) {
    return fail("--batch is missing or 0; see --help");
  } else if (options.count("--random")) {
    if (numbers["--devices"] == 0)
      return fail("--random needs --devices");
    plan = step::randomPlan(summary, static_cast<int64_t>(numbers["--batch"]), static_cast<uint32_t>(numbers["--devices"]), numbers["--random"]);
  } else {
    if (!cluster)
      return fail("--cluster is missing; see --help");
    planning::DefaultPlanOptions planOptions;
    planOptions.stages = static_cast<uint32_t>(numbers["--stages"]);
    planOptions.microBatch = static_cast<int64_t>(numbers["--microbatch"]);
    planOptions.schedule = schedule;
    plan = planning::makeDefaultPlan(summary, *cluster, static_cast<int64_t>(numbers["--batch"]), error, planOptions);
  }
  if (!plan)
    return fail(error);

  std::optional<step::StepGraph> graph = step::expandPlan(summary, *plan, error);
  if (!graph)
    return fail(options.count("--plan") ? options["--plan"] + ": " + error : error);
  if (!options.count("--quiet"))
    std::cout << planning::drawPlan(*plan, summary.units_size()) << "\n" << planning::describeStep(*plan, *graph);
  if (options.count("-o")) {
    std::ofstream file(options["-o"]);
    if (!(file << step::writePlan(*plan, summary)) || !file.flush())
      return fail(options["-o"] + ": cannot write the file");
  }
  return 0;
}
