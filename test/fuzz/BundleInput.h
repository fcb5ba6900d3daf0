// A bundle as one fuzz input: a BundleInput (fuzz.proto) turned into the files that readers ask for.
#pragma once

#include "fuzz.pb.h"

#include <map>
#include <string>
#include <string_view>

namespace zorse::fuzz {

/// The files of a bundle by name; hashes in the manifest are right where it says "@NAME", and so is the digest. False: not a BundleInput.
bool bundleFiles(std::string_view bytes, std::map<std::string, std::string> &files);

} // namespace zorse::fuzz
