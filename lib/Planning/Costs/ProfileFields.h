// Reading of measurements, shared by profiles and layer tables. Internal.
#pragma once

#include "zorse/Planning/Profile.h"
#include "zorse/Support/JsonFields.h"
#include "zorse/Support/RegularFile.h"

namespace zorse::planning {

/// Reads "devices" and "links" of a file, if present. Throws fields::Bad.
void readMeasurements(const fields::Json &root, Profile &profile);

} // namespace zorse::planning
