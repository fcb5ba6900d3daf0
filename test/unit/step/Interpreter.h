// Runs a StepGraph on symbols: every 4 bytes of an arena hold one 64-bit number, kernels are hashes, sums are exact (modulo 2^64). A wrong row, a stale
// weight, a dropped or doubled contribution or bytes reused too early change the parameters after a few steps.
#pragma once

#include "bundle.pb.h"
#include "zorse/Step/StepGraph.h"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace zorse::test {

/// What training leaves behind: per group all parameter words without padding, and the digest of every step's report.
struct Outcome {
  std::vector<std::vector<uint64_t>> parameters;
  std::vector<uint64_t> reports;
  bool operator==(const Outcome &o) const { return parameters == o.parameters && reports == o.reports; }
};

/// The same mathematics without any plan: every row through every unit, forward then backward.
Outcome runReference(const bundle::ModelSummary &summary, int64_t batch, int steps);

/// Runs the graph in one random order that queues and waits allow; transfers and collectives need all halves at the head of their queues (nothing is
/// buffered). Arenas start poisoned. `error` says why it could not finish ("deadlock ...").
bool runGraph(const bundle::ModelSummary &summary, const step::StepGraph &graph, int steps, uint64_t seed, Outcome &outcome, std::string &error);

} // namespace zorse::test
