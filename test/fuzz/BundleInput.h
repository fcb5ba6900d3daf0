// A bundle as one fuzz input: converts a BundleInput (fuzz.proto) to the files that readers open.
#pragma once

#include "fuzz.pb.h"

#include <map>
#include <string>
#include <string_view>

namespace zorse::fuzz {

/// Returns the files of a bundle by name. "@NAME" in the manifest is replaced by the correct hash,
/// and the digest is correct. Returns false if the bytes are not a BundleInput.
bool bundleFiles(std::string_view bytes, std::map<std::string, std::string> &files);

} // namespace zorse::fuzz
