#include "RenamedFlags.h"

#include <sstream>

namespace zorse {

namespace {

struct Renamed {
  const char *before;
  const char *now; ///< names in different tools, separated by spaces
};

const Renamed kRenamed[] = {
    {"allow-change", "allow-config-change"},
    {"arch", "cpu-arch"},
    {"as", "device-type"},
    {"batch", "global-batch-size"},
    {"batch-norm-rows", "batch-norm-group-size"},
    {"bodies", "functions"},
    {"candidates", "search-budget"},
    {"checkpoint", "save-weights"},
    {"clip", "max-grad-norm"},
    {"command", "remote-command"},
    {"communication", "no-overlap-comm"},
    {"deadline-seconds", "heartbeat-timeout"},
    {"decay", "weight-decay-params"},
    {"eval", "eval-data"},
    {"eval-batches", "eval-iters"},
    {"eval-every", "eval-interval"},
    {"evaluate", "eval-only"},
    {"expect", "expect-digest"},
    {"final-ratio", "min-lr-ratio"},
    {"gather", "all-nodes"},
    {"heartbeat-seconds", "heartbeat-interval"},
    {"init", "load-weights"},
    {"init-skip", "ignore-tensors"},
    {"join-seconds", "rdzv-timeout"},
    {"keep-snapshots", "save-total-limit"},
    {"least-throughput", "min-throughput"},
    {"link-seconds", "link-measure-seconds"},
    {"links-times", "bandwidth-scale"},
    {"listen", "local-addr"},
    {"loss-scale", "initial-loss-scale"},
    {"loss-scale-interval", "loss-scale-window"},
    {"memory", "max-memory"},
    {"metrics", "metrics-file"},
    {"microbatch", "max-micro-batch-size"},
    {"most-price", "max-price"},
    {"no-techniques", "no-memory-optimizations"},
    {"node", "node-name"},
    {"node-connections", "connections-per-peer"},
    {"nonfinite", "on-nonfinite"},
    {"page", "html-report"},
    {"per-sample-losses", "dump-losses"},
    {"pipelines", "num-pipelines"},
    {"processes", "spawn"},
    {"report-memory", "memory-report"},
    {"residual", "fp32-residual-connection"},
    {"restarts", "max-restarts"},
    {"rows", "batch-sizes batch-size"},
    {"sample-every", "generate-interval"},
    {"sample-prompt", "prompt"},
    {"sample-temperature", "temperature"},
    {"sample-tokens", "max-new-tokens"},
    {"sampling", "with-generation"},
    {"save", "recompute"},
    {"schedule", "lr-scheduler-type pipeline-schedule"},
    {"seconds", "max-seconds"},
    {"seq", "seq-length"},
    {"shape", "model-shape"},
    {"shell", "ssh-command"},
    {"shifted-in-graph", "labels-shifted-in-graph"},
    {"shuffle", "shuffle-seed"},
    {"simulate-evaluation", "simulate-eval"},
    {"snapshot-every", "save-interval"},
    {"snapshots", "checkpoint-dir"},
    {"speed-times", "compute-scale"},
    {"split-bodies", "compile-split-backward"},
    {"spoil", "poison-after-last-use"},
    {"staged", "host-staged"},
    {"stages", "pipeline-stages"},
    {"stall-seconds", "watchdog-timeout"},
    {"steps", "max-steps"},
    {"tensorboard", "tensorboard-dir"},
    {"threads", "num-threads in-process"},
    {"total-steps", "lr-decay-steps"},
    {"trust-guess", "infer-trainable"},
    {"warmup", "warmup-steps"},
};

const Renamed kRemoved[] = {
    {"skip-nonfinite", "every run skips the update if a gradient or the loss is not finite"},
};

} // namespace

std::vector<std::string> presentNames(const std::string &name) {
  std::vector<std::string> names;
  for (const Renamed &each : kRenamed)
    if (name == each.before) {
      std::istringstream words(each.now);
      for (std::string word; words >> word;)
        names.push_back(word);
    }
  return names;
}

std::vector<std::string> renamedNames() {
  std::vector<std::string> names;
  for (const Renamed &each : kRenamed)
    names.push_back(each.before);
  return names;
}

std::string whyRemoved(const std::string &name) {
  for (const Renamed &each : kRemoved)
    if (name == each.before)
      return each.now;
  return {};
}

CLI::Validator renamedValues(std::vector<std::pair<std::string, std::string>> oldToNew) {
  return CLI::Validator(
      [oldToNew = std::move(oldToNew)](std::string &value) {
        for (const auto &[before, now] : oldToNew)
          if (value == before)
            return before + " is now " + now;
        return std::string();
      },
      "");
}

} // namespace zorse
