// One function per launcher. Returns nullopt if its variables are not set, and an error if they are
// set but invalid.
#pragma once

#include "Variables.h"

namespace zorse::runtime::launching {

using MaybePlace = Result<std::optional<Place>>;

// Launchers that start one process per rank. placeFromEnvironment applies ZORSE_STORE and ZORSE_JOB
// afterwards.
MaybePlace zorsePlace(const Variables &v);
MaybePlace torchrunPlace(const Variables &v);
MaybePlace pmixPlace(const Variables &v, const AskPmix &pmix);
MaybePlace openMpiPlace(const Variables &v);
MaybePlace pmiPlace(const Variables &v);
MaybePlace slurmPlace(const Variables &v);

// Launchers that start one process per node.
MaybePlace petPlace(const Variables &v);
MaybePlace rankOfNodePlace(const Variables &v);
MaybePlace leaderWorkerSetPlace(const Variables &v);
MaybePlace jobSetPlace(const Variables &v);

/// Reads the job's name, its first host and whether it is the only host from Slurm's variables.
Status addSlurmAddress(const Variables &v, Place &place);

} // namespace zorse::runtime::launching
