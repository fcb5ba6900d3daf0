// Output files of a run. They are written completely or not at all, and checked to be writable
// before the run starts.
#pragma once

#include "zorse/runtime/Status.h"

#include <cstdio>
#include <functional>
#include <string>

namespace zorse::runtime {

/// Checks, without writing, whether `path` can be written: its directory exists and is writable,
/// and it is not a directory itself.
Status checkWritable(const std::string &path);

/// Writes to a temporary file next to `path` and renames it, so that a crash or a full disk leaves
/// the old file or none. Devices and pipes are written directly. `write` returns false on error.
Status writeOutput(const std::string &path, const std::function<bool(FILE *)> &write);
Status writeOutput(const std::string &path, const std::string &text);

/// Opens a new temporary file next to `target`, with an unpredictable name, for a caller that
/// renames it to `target`. The file is locked while it is open. Removes temporary files of `target`
/// that ended processes have left. Null: errno contains the reason.
FILE *createDraft(const std::string &target, std::string &draft);

} // namespace zorse::runtime
