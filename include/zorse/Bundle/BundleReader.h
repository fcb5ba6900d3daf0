// Reads a bundle for people: tools look at it with this; the runtime reads programs with checks of its own.
#pragma once

#include "zorse/Bundle/BundleWriter.h"

#include "zorse/Bundle/Manifest.h"

#include <optional>

namespace zorse::bundle {

/// A bundle without its programs and weights, which are read when asked for.
struct BundleView : Manifest {
  std::string directory;
  std::string plan; ///< plan.json
  ModelSummary summary;
  BodyLibrary bodies;                    ///< of the first target
  std::vector<BodyLibrary> otherTargets; ///< 1, 2, ...
  ReadFile read;

  /// Index of the device of that name, or of that number; -1: none.
  int findDevice(const std::string &name) const;
};

/// Reads and checks everything but programs and weights; checksums of what is read are compared. Sets `error` when nothing is returned.
std::optional<BundleView> readBundle(const std::string &directory, std::string &error);
/// The same for a bundle that is not in a directory.
std::optional<BundleView> readBundle(const std::string &directory, std::string &error, ReadFile read);

/// Replaces the bytes of `weights`, by name, by those that the bundle holds; nothing where it refers to a model's files.
bool readWeights(const BundleView &bundle, std::vector<WeightData> &weights, bool &references, std::string &error);

/// Reads kernels/<arch>/<object> of a target; `path` receives where it is.
bool readKernels(const BundleView &bundle, const BodyLibrary &target, std::string &path, std::string &bytes, std::string &error);

/// Reads and checks programs/<device>.pb.
std::optional<Program> readProgram(const BundleView &bundle, int device, std::string &error);

} // namespace zorse::bundle
