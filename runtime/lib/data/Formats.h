// What a file holds that is neither text nor tokens.
#pragma once

#include "DataFile.h"

#include <string>

namespace zorse::runtime {

/// "a Parquet file", of what is known to be neither text nor tokens by how it begins or is called; empty: nothing of that kind.
Result<std::string> otherFormat(const DataFile &file);

/// What to do with a file of that format.
std::string remedyFor(const std::string &format, const std::string &path);

/// Whether a file is a Python pickle of any protocol: its operations are followed, as protocols 0 and 1 have no beginning of their own.
Result<bool> isPickle(const DataFile &file);

} // namespace zorse::runtime
