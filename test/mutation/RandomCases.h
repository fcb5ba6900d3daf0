// Random test cases: models of random shapes, plans of every kind, random owners and schedules.
#pragma once

#include "RealPrograms.h"

#include "zorse/Step/Plan.h"

namespace zorse::test {

struct RandomCase {
  std::string kind, schedule, owners; ///< for tables and messages
  SyntheticModel model;
  step::Plan plan;
};

/// Makes case `seed`, which is the same on every machine.
///
/// - Plans: tilings of any shape; pipelines with uneven shares and micro-batches; devices with
///   several model chunks (interleaved); several pipelines of different depths; the whole model on
///   every device.
/// - Schedules: 1f1b, gpipe, timed and random orders that do not deadlock.
/// - Owners: a default, shares of 0 to 100 % on any devices, or ranges of elements.
///
/// \param model  null: a random synthetic model
/// \param largest  factor on the largest numbers of samples, units and devices; 1 gives cases small
/// enough to interpret hundreds of times.
RandomCase randomCase(uint64_t seed, const SyntheticModel *model, int largest = 1);

/// Makes a case whose gradients are summed by levels: the whole model on 3 to 12 devices of uneven
/// nodes on up to three sites, with any owners.
RandomCase levelCase(uint64_t seed);

} // namespace zorse::test
