// Decides whether the GPUs of a job transfer data directly, from memory to memory, and connects
// them.
#pragma once

#include "Options.h"

#include "zorse/runtime/Executor.h"
#include "zorse/runtime/Hardware.h"
#include "zorse/runtime/ProcessGroup.h"

#include <vector>

namespace zorse::run {

/// Decides whether GPUs transfer directly. Every rank decides the same from the facts of all ranks
/// (by device). If they do not, the bundle's programs are replaced by those without direct
/// transfers.
/// \param speaks  whether this process prints the decision (standard output; warnings on standard
///                error)
void chooseTransfers(const Options &options, runtime::Bundle &bundle,
                     const std::vector<runtime::RankHardware> &hardware, bool speaks);

/// Connects the GPUs of this process that transfer directly with the others, within `seconds`.
/// Every rank must call it, even without such a device, because it exchanges names.
runtime::Status connectDirectly(const runtime::Bundle &bundle,
                                std::vector<runtime::LocalDevice> &devices,
                                runtime::ProcessGroup &group, double seconds, bool quiet);

} // namespace zorse::run
