// verification-cost: measures the fraction of compile time that verification takes for plans with
// many devices. Runs the phases of zorse-compile from the plan file to the bundle with a synthetic
// model of 80 blocks, or verifies a bundle repeatedly for a profiler.
#include "SyntheticModel.h"

#include "Programs.h" // lib/Pipelines: the phases themselves

#include "zorse/Bundle/BundleWriter.h"
#include "zorse/Step/Plan.h"
#include "zorse/Step/StepGraph.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sys/resource.h>
#include <thread>
#include <unistd.h>

using namespace zorse;

namespace {

struct Options {
  int stages = 32, replicas = 16, microBatches = 40, blocks = 80, repeat = 3;
  unsigned threads = std::max(1u, std::thread::hardware_concurrency());
  double limit = 0.35;
  double seconds = 0.5;       ///< maximum time of verification
  int64_t memoryLimit = 2048; ///< MiB
  std::string bundle, keep;
};

double cpu() {
  timespec time;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return double(time.tv_sec) + double(time.tv_nsec) * 1e-9;
}
double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}
int64_t peakMebibytes() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss / 1024;
}
std::string contentsOf(const std::string &path) {
  std::ifstream file(path, std::ios::binary);
  std::string bytes(std::filesystem::file_size(path), 0);
  file.read(bytes.data(), std::streamsize(bytes.size()));
  return bytes;
}

/// A plan for stages x replicas devices. Each stage distributes its samples in micro-batches of one
/// row.
std::string planFile(const Options &o) {
  std::string text = "{\"global_batch_size\": " + std::to_string(o.replicas * o.microBatches) +
                     ", \"schedule\": \"1f1b\", \"devices\": [";
  auto device = [](int d) { return "\"d" + std::to_string(d) + "\""; };
  for (int d = 0; d < o.stages * o.replicas; ++d)
    text += (d ? ", " : "") + device(d);
  text += "], \"stages\": [";
  const int units = o.blocks * 2 + 2;
  for (int s = 0; s < o.stages; ++s) {
    text += std::string(s ? ", " : "") + "{\"units\": [" + std::to_string(units * s / o.stages) +
            ", " + std::to_string(units * (s + 1) / o.stages) +
            "], \"micro_batch_size\": 1, \"devices\": [";
    for (int r = 0; r < o.replicas; ++r)
      text += (r ? ", " : "") + device(s * o.replicas + r);
    text += "]}";
  }
  return text + "]}\n";
}

bundle::Topology nodesOfEight(size_t devices) {
  bundle::Topology t;
  t.add_sites()->mutable_fabric()->set_latency(1e-6);
  for (size_t d = 0; d < devices; ++d) {
    if (d % 8 == 0) {
      auto *node = t.add_nodes();
      node->set_name("n" + std::to_string(d / 8));
      node->mutable_port()->set_bandwidth(3e11);
      node->mutable_nic()->set_bandwidth(12.5e9);
    }
    t.add_node_of_device(static_cast<uint32_t>(d / 8));
  }
  return t;
}

int verifyBundle(const Options &o) {
  bundle::ModelSummary summary;
  bundle::FunctionLibrary functions;
  summary.ParseFromString(contentsOf(o.bundle + "/summary.pb"));
  functions.ParseFromString(contentsOf(o.bundle + "/functions.pb"));
  std::string plan = contentsOf(o.bundle + "/plan.json");
  std::vector<std::string> programs;
  for (size_t i = 0; std::filesystem::exists(o.bundle + "/programs/" + std::to_string(i) + ".pb");
       ++i)
    programs.push_back(contentsOf(o.bundle + "/programs/" + std::to_string(i) + ".pb"));
  bool good = !programs.empty();
  for (int i = 0; i < o.repeat && good; ++i) {
    double begin = now(), before = cpu();
    good = pipelines::verifySerialized(programs, summary, functions, plan, o.threads);
    printf("%zu programs verified in %.3f s, %.3f s of processors\n", programs.size(),
           now() - begin, cpu() - before);
  }
  return !good;
}

bool parse(int argc, char **argv, Options &o) {
  for (int i = 1; i < argc; ++i) {
    auto number = [&](const char *name, auto &target) {
      size_t length = strlen(name);
      if (strncmp(argv[i], name, length) || argv[i][length] != '=')
        return false;
      target = static_cast<std::decay_t<decltype(target)>>(atof(argv[i] + length + 1));
      return true;
    };
    if (number("--stages", o.stages) || number("--replicas", o.replicas) ||
        number("--micro-batches", o.microBatches) || number("--blocks", o.blocks) ||
        number("--repeat", o.repeat) || number("--threads", o.threads) ||
        number("--limit", o.limit) || number("--seconds", o.seconds) ||
        number("--memory-limit", o.memoryLimit))
      continue;
    if (!strncmp(argv[i], "--bundle=", 9)) {
      o.bundle = argv[i] + 9;
      continue;
    }
    if (!strncmp(argv[i], "--keep=", 7)) {
      o.keep = argv[i] + 7;
      continue;
    }
    fprintf(stderr, "verification-cost [--stages=N] [--replicas=N] [--micro-batches=N] "
                    "[--blocks=N] [--repeat=N] [--threads=N] [--limit=SHARE] "
                    "[--seconds=LIMIT] [--memory-limit=MIB] [--keep=DIR]\n"
                    "verification-cost --bundle=DIR [--repeat=N] [--threads=N]\n");
    return false;
  }
  return true;
}

/// Start and end times of the phases of one run: wall-clock time and CPU time.
struct Marks {
  double at[6] = {now()}, processors[6] = {cpu()};
  void end(int phase) {
    at[phase] = now();
    processors[phase] = cpu();
  }
};

bundle::BundleContents contentsFor(const test::SyntheticModel &model, const step::Plan &plan) {
  bundle::BundleContents contents;
  contents.model = "synthetic";
  contents.batch = plan.batch;
  contents.summary = model.summary;
  // Shapes must match the bytes: the runtime's loader compares them.
  for (bundle::GraphInput &input : *contents.summary.mutable_inputs()) {
    input.clear_shape();
    input.add_shape(input.bytes_per_row() /
                    (input.type() == bundle::I64 || input.type() == bundle::F64 ? 8 : 4));
  }
  contents.functions = model.functions;
  contents.topology = nodesOfEight(plan.devices.size());
  for (const step::PlanDevice &device : plan.devices)
    contents.devices.push_back({device.name, "sim", 1, 0});
  return contents;
}

/// The phases of zorse-compile from the plan file to the bundle.
bool compile(const Options &o, const test::SyntheticModel &model, const std::string &text,
             const std::string &directory, Marks &marks, bool says) {
  auto plan = step::readPlan(text, model.summary);
  if (Status status = plan.failed() ? Status(plan.error())
                                    : step::validatePlan(*plan, model.summary);
      status.failed()) {
    fprintf(stderr, "%s\n", status.message().c_str());
    return false;
  }
  std::string json = step::writePlan(*plan, model.summary);
  marks.end(1);
  step::LoweringOptions expand;
  expand.functions = &model.functions;
  auto graph = step::lowerPlan(model.summary, *plan, expand);
  if (graph.failed()) {
    fprintf(stderr, "%s\n", graph.message().c_str());
    return false;
  }
  marks.end(2);
  std::vector<std::string> programs = pipelines::buildPrograms(*graph, model.functions, o.threads);
  marks.end(3);
  if (programs.empty() ||
      !pipelines::verifySerialized(programs, model.summary, model.functions, json, o.threads))
    return false;
  marks.end(4);
  bundle::BundleContents contents = contentsFor(model, *plan);
  contents.plan = json;
  contents.programs = std::move(programs);
  if (Result<std::string> digest = bundle::writeBundle(contents, directory); digest.failed()) {
    fprintf(stderr, "%s\n", digest.message().c_str());
    return false;
  }
  marks.end(5);
  if (says)
    printf("%zu devices, %d units, %zu cells, %zu instructions, %zu arguments; %u threads\n",
           plan->devices.size(), model.summary.units_size(), plan->cells.size(),
           graph->instructions.size(), graph->arguments.size(), o.threads);
  return true;
}

} // namespace

int main(int argc, char **argv) {
  Options o;
  if (!parse(argc, argv, o))
    return 2;
  if (!o.bundle.empty())
    return verifyBundle(o);

  test::SyntheticOptions shape;
  shape.units = o.blocks * 2 + 2;
  shape.skip = false; // as in a chain of blocks
  const test::SyntheticModel model = test::makeModel(shape);
  // --keep keeps the bundle, for zorse-run --simulate.
  const std::string text = planFile(o),
                    directory = !o.keep.empty()
                                    ? o.keep
                                    : (std::filesystem::temp_directory_path() /
                                       ("verification-cost." + std::to_string(getpid())))
                                          .string();
  static const char *const names[] = {"plan", "step", "exec", "verify", "bundle"};
  std::vector<double> shares, processorShares, verifySeconds;
  for (int run = 0; run < o.repeat; ++run) {
    Marks marks;
    if (!compile(o, model, text, directory, marks, run == 0))
      return 1;
    if (o.keep.empty())
      std::filesystem::remove_all(directory);
    const auto &[at, processors] = marks;
    shares.push_back((at[4] - at[3]) / (at[5] - at[0]));
    verifySeconds.push_back(at[4] - at[3]);
    processorShares.push_back((processors[4] - processors[3]) / (processors[5] - processors[0]));
    printf("  ");
    for (int p = 0; p < 5; ++p)
      printf("%s %.2f s  ", names[p], at[p + 1] - at[p]);
    printf("verification %.1f %% of %.2f s; of processors %.2f of %.2f s, %.1f %%\n",
           shares.back() * 100, at[5] - at[0], processors[4] - processors[3],
           processors[5] - processors[0], processorShares.back() * 100);
  }
  std::sort(shares.begin(), shares.end());
  std::sort(processorShares.begin(), processorShares.end());
  std::sort(verifySeconds.begin(), verifySeconds.end());
  const double share = shares[shares.size() / 2], seconds = verifySeconds[shares.size() / 2];
  const bool good = share <= o.limit && seconds <= o.seconds && peakMebibytes() <= o.memoryLimit;
  printf("verification: %.2f s for %d devices (limit %g s), %.1f %% of compile time without "
         "kernels, %.1f %% of its processor time (median of %zu, "
         "limit %.0f %%); %lld MiB at most (limit %lld)\n",
         seconds, o.stages * o.replicas, o.seconds, share * 100,
         processorShares[shares.size() / 2] * 100, shares.size(), o.limit * 100,
         static_cast<long long>(peakMebibytes()), static_cast<long long>(o.memoryLimit));
  return !good;
}
