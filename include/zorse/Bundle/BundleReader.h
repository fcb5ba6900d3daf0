// Reads a bundle for people: tools look at it with this; the runtime has a reader of its own.
#pragma once

#include "zorse/Bundle/BundleWriter.h"

#include <functional>
#include <map>
#include <optional>

namespace zorse::bundle {

/// Fills the bytes of the file at a path, or says why not.
using ReadFile = std::function<bool(const std::string &path, std::string &bytes, std::string &error)>;

/// A bundle without its programs and weights, which are read when asked for.
struct BundleView {
  std::string directory;
  std::string model, precision;
  int64_t batch = 0, sequence = 0;
  std::vector<BundleDevice> devices;
  std::map<std::string, std::string> files; ///< relative path -> XXH64, hexadecimal
  std::string plan;                         ///< plan.json
  ModelSummary summary;
  BodyLibrary bodies;
  ReadFile read;

  /// Index of the device of that name, or of that number; -1: none.
  int findDevice(const std::string &name) const;
};

/// Reads and checks everything but programs and weights; checksums of what is read are compared. Sets `error` when nothing is returned.
std::optional<BundleView> readBundle(const std::string &directory, std::string &error);
/// The same for a bundle that is not in a directory.
std::optional<BundleView> readBundle(const std::string &directory, std::string &error, ReadFile read);

/// Reads and checks programs/<device>.pb.
std::optional<Program> readProgram(const BundleView &bundle, int device, std::string &error);

} // namespace zorse::bundle
