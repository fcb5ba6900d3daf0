// Reads a bundle for people: tools look at it with this; the runtime has a reader of its own.
#pragma once

#include "zorse/Bundle/BundleWriter.h"

#include <map>
#include <optional>

namespace zorse::bundle {

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

  /// Index of the device of that name, or of that number; -1: none.
  int findDevice(const std::string &name) const;
};

/// Reads and checks everything but programs and weights; checksums of what is read are compared. Sets `error` when nothing is returned.
std::optional<BundleView> readBundle(const std::string &directory, std::string &error);

/// Reads and checks programs/<device>.pb.
std::optional<Program> readProgram(const BundleView &bundle, int device, std::string &error);

} // namespace zorse::bundle
