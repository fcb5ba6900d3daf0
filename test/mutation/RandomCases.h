// Random cases: models of random shapes, plans of every kind, random owners and schedules.
#pragma once

#include "RealPrograms.h"

#include "zorse/Step/Plan.h"

namespace zorse::test {

struct RandomCase {
  std::string kind, schedule, owners; ///< for tables and messages
  SyntheticModel model;
  step::Plan plan;
};

/// Case `seed`: the same on every machine.
///
/// Kinds of plans: tilings of any shape, pipelines with uneven shares and micro-batches, devices with several chunks in turn (interleaved), several
/// pipelines of different depths, and every device with the whole model. Schedules: 1f1b, gpipe, timed and random orders that can run. Owners: a
/// default, shares of 0 to 100 % on any devices, or ranges of elements.
/// \param model  null: a random synthetic one
/// \param largest  1: small enough to interpret hundreds of times; more: up to as many times as many samples, units and devices.
RandomCase randomCase(uint64_t seed, const SyntheticModel *model, int largest = 1);

} // namespace zorse::test
