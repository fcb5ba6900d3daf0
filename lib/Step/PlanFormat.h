// Keys of plan.json by format.
//
// Format 2 is read and written. Format 1, which tools wrote before, is converted when it is read.
#pragma once

#include "zorse/Support/JsonFields.h"

namespace zorse::step {

inline constexpr int64_t kPlanFormat = 2;

/// Keys of format 1 that have another name now, with what to write instead.
extern const fields::RenamedKeys kRenamedPlanKeys;

/// Converts a plan of format 1 to format 2 in place. Leaves values that it does not understand as they are: the reader names them.
/// \throws fields::Bad  for a format that does not exist
void upgradePlan(fields::Json &root);

} // namespace zorse::step
