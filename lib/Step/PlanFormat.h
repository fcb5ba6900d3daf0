// Keys of plan.json by format.
//
// Format 2 is read and written. Format 1, which tools wrote before, is converted when it is read.
#pragma once

#include "zorse/Support/JsonFields.h"

namespace zorse::step {

inline constexpr int64_t kPlanFormat = 2;

/// Keys of format 1 that were renamed, with their present names.
extern const fields::RenamedKeys kRenamedPlanKeys;

/// Converts a plan of format 1 to format 2 in place. Values that it does not understand are not
/// changed, so the reader reports them.
/// \throws fields::Bad  for a format that does not exist
void upgradePlan(fields::Json &root);

} // namespace zorse::step
