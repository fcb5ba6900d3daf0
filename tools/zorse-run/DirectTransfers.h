// Whether GPUs of a job exchange directly, from memory to memory, and how they meet.
#pragma once

#include "Options.h"

#include "zorse/runtime/Executor.h"
#include "zorse/runtime/Group.h"
#include "zorse/runtime/Hardware.h"

#include <vector>

namespace zorse::run {

/// Decides, the same on every rank, whether GPUs exchange directly, by everyone's facts (by device); if they do not, the bundle's programs are those
/// without direct transfers from then on. \param speaks  whether this process says what was decided, on standard error and output
void chooseTransfers(const Options &options, runtime::Bundle &bundle, const std::vector<runtime::RankFacts> &facts, bool speaks);

/// GPUs of this process that exchange directly meet the others within `seconds`. All ranks call it, those without such a device too: names are
/// exchanged.
runtime::Status connectDirectly(const runtime::Bundle &bundle, std::vector<runtime::LocalDevice> &devices, runtime::Group &group, double seconds,
                                bool quiet);

} // namespace zorse::run
