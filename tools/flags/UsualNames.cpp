#include "UsualNames.h"

#include <algorithm>
#include <cctype>
#include <cstring>

namespace zorse {

namespace {

struct Meaning {
  const char *ours;   ///< name in this project, without dashes
  const char *theirs; ///< names in other programs, lower case with dashes, separated by spaces
};

const Meaning kMeanings[] = {
    {"lr", "learning-rate learningrate base-lr max-lr peak-lr initial-lr init-lr start-lr alpha"},
    {"max-steps", "num-steps n-steps total-iters iterations iters max-iters num-iters train-iters "
                  "train-steps training-steps "
                  "num-train-steps max-train-steps num-training-steps epochs num-epochs "
                  "num-train-epochs max-epochs n-epochs"},
    {"global-batch-size", "batch-size batchsize bs train-batch-size per-device-train-batch-size "
                          "per-gpu-train-batch-size minibatch-size "
                          "mini-batch-size samples-per-step"},
    {"seq-length", "seq-len seqlen sequence-length sequence-len max-seq-len max-seq-length "
                   "max-sequence-length block-size "
                   "context-length context-size ctx-len n-ctx max-length max-len model-max-length"},
    {"warmup-steps",
     "num-warmup-steps lr-warmup-steps warmup-iters lr-warmup-iters warm-up n-warmup-steps"},
    {"lr-scheduler-type",
     "lr-scheduler scheduler scheduler-type lr-schedule lr-decay-style decay-style"},
    {"lr-decay-steps", "lr-decay-iters decay-steps scheduler-steps"},
    {"min-lr-ratio", "min-lr min-lr-rate lr-min end-lr final-lr"},
    {"max-grad-norm", "clip-grad grad-clip clip-grad-norm gradient-clip gradient-clipping "
                      "gradient-clip-val max-norm clip-norm"},
    {"weight-decay", "wd l2 weightdecay decay-rate"},
    {"betas", "beta1 beta2 adam-beta1 adam-beta2 beta adam-betas"},
    {"eps", "epsilon adam-epsilon adam-eps optimizer-eps"},
    {"optimizer", "optim opt optimiser"},
    {"seed", "random-seed manual-seed rng-seed"},
    {"data", "dataset train-data training-data train-file data-path data-dir train-data-path "
             "train-dataset data-file input"},
    {"eval-data", "valid-data val-data validation-data validation-file val-file eval-file "
                  "eval-dataset valid-data-path validation "
                  "test-data"},
    {"eval-interval",
     "eval-steps eval-freq eval-frequency val-check-interval evaluation-interval validate-every"},
    {"eval-iters", "limit-val-batches eval-max-batches max-eval-batches"},
    {"eval-only", "do-eval validate test-only"},
    {"load-weights", "pretrained pretrained-model pretrained-weights model-name-or-path init-from "
                     "init-checkpoint finetune "
                     "load-checkpoint from-pretrained"},
    {"save-weights",
     "output output-dir out-dir save save-path save-model output-path out model-dir"},
    {"output", "out out-dir output-dir output-path output-file save-path"},
    {"checkpoint-dir",
     "checkpoints ckpt-dir ckpt save-dir checkpoint-path default-root-dir output-dir save"},
    {"save-interval", "save-steps save-every save-freq checkpoint-every checkpoint-interval "
                      "checkpoint-steps every-n-train-steps"},
    {"save-total-limit", "keep-last keep-checkpoints save-top-k max-checkpoints"},
    {"resume", "resume-from-checkpoint resume-from continue load auto-resume"},
    {"metrics-file", "log log-file log-json logfile json-log log-path history"},
    {"tensorboard-dir", "log-dir logging-dir logdir tb-dir report-to"},
    {"spawn", "nproc nproc-per-node num-processes world-size gpus num-gpus n-gpus gpus-per-node "
              "devices num-devices"},
    {"max-restarts", "retries max-retries"},
    {"heartbeat-timeout", "timeout timeout-seconds ddp-timeout"},
    {"rdzv-timeout", "join-timeout"},
    {"shuffle-seed", "data-seed"},
    {"precision", "dtype torch-dtype data-type mixed-precision amp bf16 fp16 bfloat16 float16 half "
                  "fp32 tf32 allow-tf32"},
    {"num-threads", "workers num-workers jobs nthreads n-threads j"},
    {"in-process", "single-process"},
    {"ignore-tensors", "ignore-keys skip-keys ignore-mismatched-sizes"},
    {"quiet", "silent q"},
    {"plan", "strategy layout partition"},
    {"tensor-parallel-size", "tp tensor-parallel tensor-model-parallel-size"},
    {"gradient-wire", "reduce-dtype communication-data-type grad-reduce-dtype bf16-compress "
                      "gradient-compression compress-gradients"},
    {"pipeline-stages", "pp pipeline-parallel pipeline-parallel-size pipeline-model-parallel-size"},
    {"num-pipelines", "dp data-parallel data-parallel-size"},
    {"max-micro-batch-size", "micro-batch-size"},
    {"cluster", "devices hardware hosts hostfile cluster-file machine-file"},
    {"accumulate", "allow-fp16-accumulation fp16-accumulation accumulation-type"},
    {"initial-loss-scale", "initial-scale init-scale"},
    {"recompute", "gradient-checkpointing activation-checkpointing recompute-activations "
                  "recompute-granularity remat"},
    {"freeze", "freeze-layers frozen exclude"},
    {"train", "trainable trainable-params train-only"},
    {"generate-interval", "generate-every sample-interval generation-interval"},
};

/// Options that only one tool has; the other tools name that tool in a hint.
const Meaning kOfOtherTools[] = {
    {"global-batch-size", "zorse-compile"},
    {"seq-length", "zorse-compile"},
    {"precision", "zorse-compile"},
    {"optimizer", "zorse-compile"},
    {"betas", "zorse-compile"},
    {"eps", "zorse-compile"},
    {"weight-decay", "zorse-compile"},
    {"max-steps", "zorse-run"},
    {"data", "zorse-run"},
    {"eval-data", "zorse-run"},
    {"load-weights", "zorse-run"},
    {"save-weights", "zorse-run"},
    {"checkpoint-dir", "zorse-run"},
    {"resume", "zorse-run"},
    {"metrics-file", "zorse-run"},
};

struct Remark {
  const char *theirs, *text;
};

const Remark kRemarks[] = {
    {"tp tensor-parallel tensor-parallel-size tensor-model-parallel-size",
     "--tensor-parallel-size=N of zorse-compile and zorse-plan searches for plans with tensor "
     "parallelism"},
    {"cp context-parallel context-parallel-size sequence-parallel ep "
     "expert-parallel expert-parallel-size expert-model-parallel-size",
     "context and expert parallelism are not supported; the planner divides the model into "
     "pipeline stages, the samples among devices and, with --tensor-parallel-size, units among "
     "devices of a node"},
    {"pp pipeline-parallel pipeline-parallel-size pipeline-model-parallel-size dp "
     "data-parallel data-parallel-size micro-batch-size num-microbatches "
     "gradient-accumulation-steps accumulate-grad-batches accum-steps "
     "num-layers-per-virtual-pipeline-stage",
     "the planner decides this for the cluster; to set it yourself, write a plan and pass it with "
     "--plan (docs/reference/plan-json.md)"},
    {"zero zero-stage zero-optimization fsdp sharding-strategy cpu-offload offload "
     "offload-optimizer offload-param deepspeed",
     "the planner shards and offloads automatically if memory is insufficient; to set it yourself, "
     "write a plan and pass it with --plan "
     "(docs/reference/plan-json.md)"},
    {"node-rank rank local-rank master-addr master-port rdzv-endpoint rdzv-id nnodes",
     "the launcher sets this with environment variables (docs/guides/clusters.md)"},
    {"torch-compile jit", "models are always compiled"},
    {"wandb wandb-project report-to-wandb",
     "--metrics-file writes one JSON object per step, which other programs can read"},
};

std::string plain(const std::string &given) {
  size_t begin = given.find_first_not_of('-');
  std::string name = begin == std::string::npos ? std::string() : given.substr(begin);
  for (char &c : name)
    c = c == '_' || c == '.' ? '-' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return name;
}

bool isAmong(const std::string &name, const char *words) {
  if (name.empty() || name.find(' ') != std::string::npos)
    return false;
  return (" " + std::string(words) + " ").find(" " + name + " ") != std::string::npos;
}

} // namespace

std::vector<std::string> sameMeaning(const std::string &given) {
  const std::string name = plain(given);
  std::vector<std::string> found{name}; // learning_rate differs from a known name only in the dash
  for (const Meaning &meaning : kMeanings)
    if (isAmong(name, meaning.theirs))
      found.push_back(meaning.ours);
  return found;
}

bool hasNoCounterpart(const std::string &given) {
  return std::any_of(std::begin(kRemarks), std::end(kRemarks),
                     [&](const Remark &remark) { return isAmong(plain(given), remark.theirs); });
}

std::string remarkOn(const std::string &given) {
  for (const Remark &remark : kRemarks)
    if (isAmong(plain(given), remark.theirs))
      return remark.text;
  for (const std::string &same : sameMeaning(given))
    for (const Meaning &other : kOfOtherTools)
      if (same == other.ours)
        return "--" + same + " is an option of " + other.theirs;
  return {};
}

} // namespace zorse
