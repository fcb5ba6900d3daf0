// One function per launcher. Returns nullopt if its variables are not set, and an error if they are
// set but invalid.
#pragma once

#include "Variables.h"

namespace zorse::runtime::launching {

using MaybeEnvironment = Result<std::optional<RankEnvironment>>;

// Launchers that start one process per rank. readRankEnvironment applies ZORSE_STORE and ZORSE_JOB
// afterwards.
MaybeEnvironment readZorseEnvironment(const Variables &v);
MaybeEnvironment readTorchrunEnvironment(const Variables &v);
MaybeEnvironment readPmixEnvironment(const Variables &v, const AskPmix &pmix);
MaybeEnvironment readOpenMpiEnvironment(const Variables &v);
MaybeEnvironment readPmiEnvironment(const Variables &v);
MaybeEnvironment readSlurmEnvironment(const Variables &v);

// Launchers that start one process per node.
MaybeEnvironment readPetEnvironment(const Variables &v);
MaybeEnvironment readRankOfNodeEnvironment(const Variables &v);
MaybeEnvironment readLeaderWorkerSetEnvironment(const Variables &v);
MaybeEnvironment readJobSetEnvironment(const Variables &v);

/// Reads the job's name, its first host and whether it is the only host from Slurm's variables.
Status addSlurmAddress(const Variables &v, RankEnvironment &environment);

} // namespace zorse::runtime::launching
