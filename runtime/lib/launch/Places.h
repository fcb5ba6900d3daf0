// One function per launcher. Each returns nullopt where its variables are not there, and an error where they are there but do not make a place.
#pragma once

#include "Variables.h"

namespace zorse::runtime::launching {

using MaybePlace = Result<std::optional<Place>>;

/// Where ranks of a launcher meet that tells no address itself. ZORSE_STORE and ZORSE_JOB are applied by placeFromEnvironment afterwards.
MaybePlace zorsePlace(const Variables &v);
MaybePlace torchrunPlace(const Variables &v);
MaybePlace pmixPlace(const Variables &v, const AskPmix &pmix);
MaybePlace openMpiPlace(const Variables &v);
MaybePlace pmiPlace(const Variables &v);
MaybePlace slurmPlace(const Variables &v);

// Node-level ones.
MaybePlace petPlace(const Variables &v);
MaybePlace rankOfNodePlace(const Variables &v);
MaybePlace leaderWorkerSetPlace(const Variables &v);
MaybePlace jobSetPlace(const Variables &v);

/// The job's name, its first host and whether it is the only one, from Slurm's variables.
Status addSlurmAddress(const Variables &v, Place &place);

} // namespace zorse::runtime::launching
