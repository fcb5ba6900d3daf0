// What profiles and tables of layers have in common: measurements, and how their files are read. Internal.
#pragma once

#include "zorse/Planning/Profile.h"
#include "zorse/Support/JsonFields.h"

namespace zorse::planning {

/// "devices" and "links" of a file, where it has them. Throws fields::Bad.
void readMeasurements(const fields::Json &root, Profile &profile);

/// At most one buffer more than `most` bytes, so that whoever reads the text refuses it. \returns false and a message for a file that cannot be read.
bool readTextFile(const std::string &path, size_t most, std::string &text, std::string &error);

} // namespace zorse::planning
