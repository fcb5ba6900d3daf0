// Reads a bundle for inspection tools. The runtime reads programs with its own checks.
#pragma once

#include "zorse/Bundle/BundleWriter.h"

#include "zorse/Bundle/Manifest.h"

namespace zorse::bundle {

/// A bundle without its programs and weights, which are read on request.
struct BundleView : Manifest {
  std::string directory;
  std::string plan; ///< plan.json
  ModelSummary summary;
  FunctionLibrary functions;                 ///< of target 0
  std::vector<FunctionLibrary> otherTargets; ///< of targets 1, 2, ...
  ReadFile read;

  /// Index of the device with this name or number; -1: none.
  int findDevice(const std::string &name) const;
};

/// Reads and checks everything except programs and weights. Compares the checksums of the files
/// that it reads.
Result<BundleView> readBundle(const std::string &directory);
/// The same for a bundle that is not in a directory.
Result<BundleView> readBundle(const std::string &directory, ReadFile read);

/// Where the bundle's initial weights are: weights.json.
struct StoredWeights {
  bool references = false; ///< some of them are in files of the model
  HubModel hub;
  /// By ParameterInfo. `file` is a name in the bundle that the manifest lists, or the path of a
  /// file of the model.
  std::vector<WeightData> weights;
};
Result<StoredWeights> readWeightTable(const BundleView &bundle);

/// Replaces files of the bundle by their bytes, and compares the files' checksums.
Status readStoredBytes(const BundleView &bundle, std::vector<WeightData> &weights);

/// Replaces the bytes of `weights`, matched by name, by those stored in the bundle. Returns false,
/// and replaces nothing, if the bundle refers to a model's files.
Result<bool> readWeights(const BundleView &bundle, std::vector<WeightData> &weights);

struct KernelFile {
  std::string path, bytes;
};
/// Reads kernels/<arch>/<object> of a target.
Result<KernelFile> readKernels(const BundleView &bundle, const FunctionLibrary &target);

/// Reads and checks the program of a device (programs/<device>.pb).
Result<Program> readProgram(const BundleView &bundle, int device);

} // namespace zorse::bundle
