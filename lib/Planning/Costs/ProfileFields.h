// What profiles and tables of layers have in common: measurements, and how their files are read. Internal.
#pragma once

#include "zorse/Planning/Profile.h"
#include "zorse/Support/JsonFields.h"
#include "zorse/Support/RegularFile.h"

namespace zorse::planning {

/// "devices" and "links" of a file, where it has them. Throws fields::Bad.
void readMeasurements(fields::Json root, Profile &profile);

} // namespace zorse::planning
