// Files a run writes: whole or not at all, and known to be writable before any work is done for them.
#pragma once

#include "zorse/runtime/Status.h"

#include <cstdio>
#include <functional>
#include <string>

namespace zorse::runtime {

/// Whether `path` can be written as far as can be told without writing: its folder is there and writable, it is no folder itself.
Status checkWritable(const std::string &path);

/// Writes beside `path` first and renames, so that a crash or a full disk leaves the old file or none; devices and pipes are written to directly.
/// `write` returns false when it could not write.
Status writeOutput(const std::string &path, const std::function<bool(FILE *)> &write);
Status writeOutput(const std::string &path, const std::string &text);

/// Opens a new file beside `target`, under a name that others cannot guess, for a caller that renames it to `target` itself. It is locked as long as
/// it is open; drafts of `target` that ended processes have left are removed. Null: errno says why not.
FILE *createDraft(const std::string &target, std::string &draft);

} // namespace zorse::runtime
