// Reading of measurements, shared by profiles and layer tables. Internal.
#pragma once

#include "zorse/Planning/Profile.h"
#include "zorse/Support/JsonFields.h"
#include "zorse/Support/RegularFile.h"

namespace zorse::planning {

/// "devices" and "links" of a file, where it has them. Throws fields::Bad.
void readMeasurements(fields::Json root, Profile &profile);

} // namespace zorse::planning
