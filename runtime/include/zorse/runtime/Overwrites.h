// Outputs must not overwrite inputs: one rule for all tools, asked before anything is opened.
#pragma once

#include "zorse/runtime/Status.h"

#include <string>
#include <vector>

namespace zorse::runtime {

/// A path as a tool was told it.
struct NamedPath {
  std::string name;      ///< "--checkpoint", "the model": for the message
  std::string path;      ///< a file or a folder; empty: not given
  bool replaced = false; ///< of an output: a folder that is replaced with everything in it
};

/// An error where an output is an input or another output, lies in a folder that is an input, or is a folder that is replaced and holds an input.
/// Files are compared by what they are (device and inode), so that links and other spellings are seen through; those that are not there yet by their
/// folder and name.
Status checkOverwrites(const std::vector<NamedPath> &inputs, const std::vector<NamedPath> &outputs);

} // namespace zorse::runtime
