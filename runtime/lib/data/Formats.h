// Detects data files that contain neither text nor tokens.
#pragma once

#include "DataFile.h"

#include <string>

namespace zorse::runtime {

/// Recognizes files that are neither text nor tokens by their first bytes or their suffix. Returns
/// for example "a Parquet file"; empty if no known format matches.
Result<std::string> otherFormat(const DataFile &file);

/// How to convert a file of that format into one that can be read.
std::string remedyFor(const std::string &format, const std::string &path);

/// Whether a file is a Python pickle of any protocol. The operations are parsed, because protocols
/// 0 and 1 have no magic number.
Result<bool> isPickle(const DataFile &file);

} // namespace zorse::runtime
