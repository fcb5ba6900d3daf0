// Checks that outputs do not overwrite inputs. All tools use it before they open files.
#pragma once

#include "zorse/runtime/Status.h"

#include <string>
#include <vector>

namespace zorse::runtime {

/// A path from the command line of a tool.
struct NamedPath {
  std::string name;      ///< "--save-weights", "the model": for the message
  std::string path;      ///< file or directory; empty: not given
  bool replaced = false; ///< output directory that is replaced with all its contents
};

/// Returns an error if an output is an input or another output, is in an input directory, or is a
/// replaced directory that contains an input. Files are compared by device and inode, so links and
/// other spellings of a path are recognized. Files that do not exist yet are compared by directory
/// and name.
Status checkOverwrites(const std::vector<NamedPath> &inputs, const std::vector<NamedPath> &outputs);

} // namespace zorse::runtime
