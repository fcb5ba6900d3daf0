// Times a strategy by the expansion itself, in its mode for times and memory peaks only; replicas
// are simulated once. Internal to Planning.
#pragma once

#include "CompiledFunctions.h"
#include "Memo.h"
#include "Replicas.h"

#include "zorse/Planning/Strategy.h"

#include <memory>
#include <vector>

namespace zorse::planning {

/// Times strategies of one problem, remembers their results and caches the data that they share.
/// Not thread-safe: one per thread.
class StrategySimulator {
public:
  /// Placed buffers usually leave gaps of 1/kGaps of the activations.
  static constexpr uint64_t kFragmentationDivisor = 50;

  /// \param gaps   memory use includes 1/gaps of the activations for gaps. 0: none; plans may then
  ///   turn out not to fit, but no plan that fits is rejected
  /// \param tries  number of retries with fewer samples in flight if memory is insufficient
  explicit StrategySimulator(const Problem &problem, uint64_t gaps = kFragmentationDivisor,
                             int tries = 1);

  struct Result {
    bool ran = false; ///< false: the order cannot run (deadlock), or functions do not exist
    double step = 0;  ///< seconds
    uint64_t shortfallBytes = 0;                ///< bytes over the devices' memory, summed
    std::vector<uint64_t> memory;               ///< per device of the cluster, gaps included
    std::vector<uint64_t> fragmentationDivisor; ///< per device: bytes included in `memory` for gaps
    std::vector<double> busy;                   ///< per device: seconds of compute
    uint32_t tasks = 0;                         ///< number of instructions of the simulated list
    uint64_t work = 0; ///< those of all lists that were made for it, also if it is remembered
  };
  /// Simulates a strategy, unless it was simulated before.
  const Result &run(const Strategy &strategy);

  /// Evaluates a strategy without placing buffers, like planning::estimate. Does not remember it.
  zorse::Result<Evaluation> estimate(const Strategy &strategy);

  /// Returns the strategy's plan with all pipelines.
  step::Plan plan(const Strategy &strategy);

private:
  Result simulate(const Strategy &strategy);
  zorse::Result<step::StepTimes> timeWithReplicas(const Strategy &strategy, const Result *equal);
  void assignCells(const Strategy &strategy, bool withReplicas, step::Plan &plan) const;
  zorse::Result<step::StepTimes> time(const step::Plan &plan) const;
  const Result *withEqualShares(const Strategy &strategy);
  void ownByMemory(const Result *equal, bool withReplicas, step::Plan &plan) const;

  const Problem &problem;
  const uint64_t fragmentationDivisor;
  const int tries;
  std::shared_ptr<step::LoweringTables> tables;
  const CompiledFunctions functions;
  ReplicaFinder replicas;
  step::Plan reused; ///< plan to reuse, because devices and links are equal for all strategies
  Memo<Result> simulated;
};

/// Returns the times of a step with the peaks of live bytes.
Evaluation evaluationOf(const Problem &problem, const step::StepTimes &times);

} // namespace zorse::planning
