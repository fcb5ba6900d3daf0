// Writes the outputs of a run after its last step.
#include "JobOutput.h"
#include "LocalTrainer.h"

#include "zorse/runtime/Report.h"
#include "zorse/runtime/TimeBreakdown.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <functional>

using namespace zorse;
using namespace zorse::run;
using namespace zorse::runtime;

namespace {

/// Keeps the first error and prints later ones. Returns whether `status` is a success.
bool keepFirst(std::optional<Error> &first, Status status) {
  if (status.failed() && first)
    fprintf(stderr, "error: %s\n", status.message().c_str());
  else if (status.failed())
    first = status.error();
  return status.succeeded();
}

} // namespace

void LocalTrainer::tellMeasurements(std::optional<Error> &first) {
  if (!o.memoryReport.empty()) {
    Result<std::vector<Executor::MemoryUse>> uses = executor->memoryUse();
    if (!uses.failed())
      for (size_t i = 0; i < executor->devices().size(); ++i)
        tell(sayMemory(executor->devices()[i], (*uses)[i]));
    else
      keepFirst(first, uses.error());
  }
  if (!o.trace.empty() || showsTimes()) {
    std::vector<TraceEvent> events = executor->takeTrace();
    double offset = alone() ? 0 : std::chrono::duration<double>(began - made).count();
    for (TraceEvent &event : events) {
      event.begin -= offset;
      event.end -= offset;
    }
    for (std::string &message : sayTrace(events))
      tell(std::move(message));
  }
}

Status LocalTrainer::writeOutputs(const TimeBreakdown &breakdown, std::optional<Error> &first) {
  struct {
    const std::string &path;
    const char *what;
    std::function<Status()> write;
  } const outputs[] = {
      {o.checkpoint, "weights",
       [&] { return writeWeights(o.checkpoint, SavedWeights::Parameters); }},
      {o.averages, "moving averages of weights",
       [&] { return writeWeights(o.averages, SavedWeights::Averages); }},
      {o.metrics, "metrics", [&] { return process.output->writeMetrics(); }},
      {o.tensorboard, "events for TensorBoard", [&] { return process.output->closeTensorBoard(); }},
      {o.gradients, "gradients", [&] { return gradients.write(o.gradients); }},
      {o.lossRows, "per-sample losses", [&] { return lossRows.write(o.lossRows); }},
      {o.memoryReport, "memory report",
       [&] {
         return writeMemoryReport(o.memoryReport, bundle, process.output->memoryUses(),
                                  emptyExecutor);
       }},
      {o.page, "page", [&] { return process.output->writePage(breakdown, training.options); }},
      {o.trace, "trace", [&] { return process.output->writeTrace(); }},
  };
  for (const auto &output : outputs) {
    const bool isWeights = output.path == o.checkpoint || output.path == o.averages;
    if (output.path.empty() || (partsFailed && isWeights))
      continue; // the error has been printed
    if (unchanged && training.firstStep == 1 && isWeights) {
      fprintf(stderr,
              "error: %s: not written: no update was applied, so it would hold the initial "
              "parameters\n",
              output.path.c_str());
      continue;
    }
    // If this process was suspended, the outputs belong to a later start of the job.
    if (Status status = o.checkpointDirectory.empty() || o.evaluate
                            ? Status::success()
                            : checkFence(o.checkpointDirectory, process.group.generation());
        status.failed())
      return status;
    if (keepFirst(first, output.write()) && !o.quiet)
      printf("%s: %s\n", output.what, output.path.c_str());
  }
  return Status::success();
}

Status LocalTrainer::finish() {
  std::optional<Error> first = problem;
  if (checkpoints)
    keepFirst(first, finishCheckpoints());
  tellMeasurements(first);
  if (auto met = process.group.allGatherBytes("everything is said", ""); met.failed())
    return first ? Status(*first) : Status(met.error());
  if (!process.output) {
    keepFirst(first, waitForOutputs());
    return end(first);
  }

  process.output->drain();
  if (stepsDone < o.steps)
    fprintf(stderr, "interrupted after step %llu of %llu\n", (unsigned long long)stepsDone,
            (unsigned long long)o.steps);
  if (stepsDone < o.steps && !o.checkpointDirectory.empty() && !first)
    fprintf(stderr, "to resume: %s\n", resumeCommand(o, process.member != nullptr).c_str());
  const TimeBreakdown breakdown = showsTimes() ? process.output->breakdown() : TimeBreakdown();
  if (Status status = writeOutputs(breakdown, first); status.failed())
    return first ? Status(*first) : status;
  if (!o.quiet)
    fputs(describeBreakdown(bundle, breakdown, process.output->secondsAStep()).c_str(), stdout);
  if (o.evaluate && !o.quiet)
    sayEvaluation();
  removeParts();
  keepFirst(first, waitForOutputs());
  return end(first);
}

Status LocalTrainer::end(const std::optional<Error> &first) {
  if (!first && checkpoints)
    checkpoints->removeMemory();
  return first ? Status(*first) : Status::success();
}

void LocalTrainer::sayEvaluation() const {
  const std::optional<StepReport> &report = process.output->lastEvaluation();
  if (!report)
    return;
  // Perplexity is printed for language models whose loss is the mean of one cross-entropy, with
  // no other terms.
  const auto &terms = bundle.summary.loss();
  std::string more;
  if (bundle.sequence > 0 && terms.size() == 1 && terms[0].factor().rfind("1/", 0) == 0) {
    char text[64];
    snprintf(text, sizeof text, ", perplexity %.6g", std::exp(report->loss));
    more = text;
  }
  const uint64_t all = evaluation->samplesPerEpoch();
  uint64_t max = o.evaluationBatches > 0
                     ? std::min(all, o.evaluationBatches * uint64_t(bundle.samples()))
                     : all;
  max -= max % evaluationUnit(bundle);
  printf("evaluation: loss %.9g%s, %llu%s samples\n", report->loss, more.c_str(),
         (unsigned long long)max, max < all ? (" of " + std::to_string(all)).c_str() : "");
}

Status LocalTrainer::waitForOutputs() {
  if (auto met = process.group.allGatherBytes("outputs are written", ""); met.failed())
    return met.error();
  return Status::success();
}
