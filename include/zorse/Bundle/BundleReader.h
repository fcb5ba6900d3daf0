// Reads a bundle for people: tools look at it with this; the runtime reads programs with checks of its own.
#pragma once

#include "zorse/Bundle/BundleWriter.h"

#include "zorse/Bundle/Manifest.h"

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

/// Reads and checks everything but programs and weights; checksums of what is read are compared.
Result<BundleView> readBundle(const std::string &directory);
/// The same for a bundle that is not in a directory.
Result<BundleView> readBundle(const std::string &directory, ReadFile read);

/// Replaces the bytes of `weights`, by name, by those that the bundle holds. False: it refers to a model's files, and nothing is replaced.
Result<bool> readWeights(const BundleView &bundle, std::vector<WeightData> &weights);

struct KernelFile {
  std::string path, bytes;
};
/// Reads kernels/<arch>/<object> of a target.
Result<KernelFile> readKernels(const BundleView &bundle, const BodyLibrary &target);

/// Reads and checks programs/<device>.pb.
Result<Program> readProgram(const BundleView &bundle, int device);

} // namespace zorse::bundle
