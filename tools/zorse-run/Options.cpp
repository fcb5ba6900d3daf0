#include "Options.h"

#include "zorse/Bundle/Manifest.h"
#include "zorse/Support/RegularFile.h"
#include "zorse/runtime/Data.h"
#include "zorse/runtime/OutputFile.h"
#include "zorse/runtime/Overwrites.h"

#include <cstdlib>
#include <sstream>

using namespace zorse;
using namespace zorse::run;
using runtime::Status;

namespace {

std::vector<runtime::NamedPath> outputsOf(const Options &o) {
  return {{"--metrics-file", o.metrics},      {"--trace", o.trace},
          {"--html-report", o.page},          {"--json", o.json},
          {"--save-weights", o.checkpoint},   {"--save-ema", o.averages},
          {"--dump-gradients", o.gradients},  {"--dump-losses", o.lossRows},
          {"--memory-report", o.memoryReport}};
}

/// Outputs, and the folders in which outputs are created.
std::vector<runtime::NamedPath> writtenBy(const Options &o) {
  std::vector<runtime::NamedPath> all = outputsOf(o);
  if (!o.evaluate)
    all.push_back({"--checkpoint-dir", o.checkpointDirectory});
  all.push_back({"--tensorboard-dir", o.tensorboard});
  return all;
}

void addData(std::vector<runtime::NamedPath> &paths, const std::string &option,
             const std::string &text) {
  for (const std::string &file : runtime::dataFiles(text))
    paths.push_back({option, file});
}

} // namespace

std::string zorse::run::resumeCommand(const Options &o, bool isRank) {
  if (isRank && !o.processes)
    return "restart the same job" + std::string(o.resume ? "" : " with --resume");
  std::string line;
  for (const std::string &word : o.words) {
    const bool plain =
        !word.empty() &&
        word.find_first_not_of(
            "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=.,:/@%") ==
            std::string::npos;
    std::string quoted;
    for (char c : word)
      quoted += c == '\'' ? "'\\''" : std::string(1, c);
    line += (line.empty() ? "" : " ") + (plain ? word : "'" + quoted + "'");
  }
  return o.resume ? line : line + " --resume";
}

runtime::Result<runtime::GenerationOptions>
zorse::run::generationOptions(const Options &o, const runtime::Bundle &bundle, uint64_t seed) {
  runtime::GenerationOptions generation;
  generation.tokens = o.maxNewTokens;
  generation.temperature = o.temperature;
  generation.seed = seed;
  const std::string text = "text:";
  if (o.prompt.rfind(text, 0) == 0) {
    if (const int64_t vocabulary = bundle.summary.logits().vocabulary();
        !runtime::bytesAreTokens(vocabulary))
      return runtime::userError("--prompt " + o.prompt +
                                ": expected token ids of a vocabulary of " +
                                std::to_string(vocabulary) +
                                ", found text, but the tokens of this model are not bytes. Print "
                                "token ids with: python3 -m zorse.data --encode '" +
                                o.prompt.substr(text.size()) + "' --tokenizer TOKENIZER");
    for (unsigned char byte : o.prompt.substr(text.size()))
      generation.prompt.push_back(byte);
    return generation;
  }
  std::istringstream parts(o.prompt);
  for (std::string part; std::getline(parts, part, ',');) {
    if (part.empty() || part.size() > 18 ||
        part.find_first_not_of("0123456789") != std::string::npos)
      return runtime::userError(
          "--prompt: expected token ids separated by commas, or text:TEXT, got '" + o.prompt + "'");
    generation.prompt.push_back(std::strtoll(part.c_str(), nullptr, 10));
  }
  return generation;
}

Status zorse::run::checkOutputs(const Options &o) {
  std::vector<runtime::NamedPath> inputs = {{"the bundle", o.bundle},
                                            {"--load-weights", o.initial},
                                            {"--cluster", o.cluster},
                                            {"--secret-file", o.secretFile}};
  addData(inputs, "--data", o.data);
  addData(inputs, "--eval-data", o.evaluation);
  if (Status status = runtime::checkOverwrites(inputs, writtenBy(o)); status.failed())
    return status;
  for (const runtime::NamedPath &output : outputsOf(o))
    if (!output.path.empty())
      if (Status status = runtime::checkWritable(output.path); status.failed())
        return runtime::userError(output.name + ": " + status.message());
  return Status::success();
}

runtime::Result<runtime::Bundle> zorse::run::openBundle(const Options &o, runtime::BundleUse use) {
  runtime::Result<runtime::Bundle> bundle = runtime::loadBundle(o.bundle, use);
  if (bundle.failed())
    return bundle;
  if (!o.expect.empty() && bundle->digest != o.expect)
    return runtime::userError(
        o.bundle + ": digest is " + bundle->digest + ", but --expect-digest is " + o.expect +
        ". This is another bundle; compile the model again, or correct --expect-digest");
  std::vector<runtime::NamedPath> weights; // weight files outside the bundle that it references
  for (const runtime::WeightSource &source : bundle->weights)
    if (weights.empty() || weights.back().path != source.file)
      weights.push_back({"the initial weights", source.file});
  if (Status status = runtime::checkOverwrites(weights, writtenBy(o)); status.failed())
    return status;
  if (runtime::Result<bundle::TrainingOptions> training =
          trainingOptions(o, bundle->summary.training());
      training.failed())
    return training.error();
  if (!o.averages.empty() && bundle->summary.training().ema_decay() == 0)
    return runtime::userError("--save-ema: " + o.bundle +
                              " keeps no moving average of parameters; compile with --ema-decay");
  return bundle;
}

runtime::Result<bundle::TrainingOptions>
zorse::run::trainingOptions(const Options &o, const bundle::TrainingOptions &compiled) {
  bundle::TrainingOptions training = compiled;
  if (o.clip)
    training.set_clip_norm(*o.clip);
  if (o.seed)
    training.set_seed(*o.seed);
  if (Status status = o.schedule.apply(training); status.failed())
    return status.error();
  return training;
}

std::string zorse::run::runText(const Options &o, const std::string &dataFingerprint,
                                const std::string &evaluationFingerprint) {
  std::ostringstream text;
  text.precision(17);
  text << "steps=" << o.steps << " data=" << dataFingerprint;
  auto add = [&](const char *name, const auto &value) {
    if (value)
      text << " " << name << "=" << *value;
  };
  add("shuffle", o.shuffle);
  add("seed", o.seed);
  add("clip", o.clip);
  text << o.schedule.text();
  if (!o.schedule.file.empty())
    if (runtime::Result<std::string> table = readRegularFile(o.schedule.file, size_t(64) << 20);
        !table.failed())
      text << " schedule-file=" << bundle::sha256(*table);
  for (const auto &[name, value] :
       std::initializer_list<std::pair<const char *, const std::string &>>{
           {"nonfinite", o.nonFinite}, {"snapshots", o.checkpointDirectory}})
    if (!value.empty())
      text << " " << name << "=" << value;
  if (!o.evaluation.empty())
    text << " eval=" << evaluationFingerprint << " eval-every=" << o.evaluateEvery
         << " eval-batches=" << o.evaluationBatches;
  if (!o.checkpointDirectory.empty())
    text << " snapshot-every=" << o.saveInterval << " keep-snapshots=" << o.saveTotalLimit
         << " allow-change=" << o.allowChange;
  if (!o.anyWeights().empty())
    text << " checkpoint=yes";
  if (o.shareGpus)
    text << " share-gpus";
  if (o.generateInterval > 0)
    text << " sample-every=" << o.generateInterval << " sample-tokens=" << o.maxNewTokens
         << " sample-prompt=" << o.prompt << " sample-temperature=" << o.temperature;
  if (o.hostStaged)
    text << " staged=yes";
  if (o.evaluate)
    text << " evaluate=yes snapshots=" << o.checkpointDirectory;
  return text.str();
}
