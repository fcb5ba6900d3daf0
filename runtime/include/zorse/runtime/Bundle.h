// A validated bundle in memory: all indices and ranges in it can be used without further checks.
// docs/reference/bundle.md describes the files.
#pragma once

#include "bundle.pb.h"
#include "zorse/Bundle/HubFacts.h"
#include "zorse/Summary/Summary.h"
#include "zorse/runtime/KernelObjects.h"
#include "zorse/runtime/MappedFile.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace zorse::runtime {

struct BundleDevice {
  std::string name;
  std::string kind; ///< zorse/Bundle/DeviceKinds.h
  int threads = 1;
  uint64_t memory = 0;   ///< bytes; 0: unlimited
  uint32_t target = 0;   ///< index of its function library
  int32_t d2dGroup = -1; ///< devices with equal numbers exchange from device memory to device
                         ///< memory; -1: none
};

/// Location of the initial bytes of one parameter.
struct WeightSource {
  std::string name; ///< ParameterInfo.name
  std::string file; ///< resolved path
  uint64_t offset = 0, bytes = 0;
  std::string type; ///< "f32", "f64", "f16", "bf16", "i64", "i32", "i16", "i8", "u8", "i1"
  std::vector<int64_t> shape;       ///< stored shape, as in the ONNX file
  std::vector<int64_t> permutation; ///< parameter dimension i is stored dimension permutation[i];
                                    ///< empty: identity
  bundle::HubFact hub;              ///< relative to `shape`
  /// Contents of a file of the bundle as they were hashed, even if the file has changed since.
  /// Null: the model's own file, opened at `file`.
  std::shared_ptr<const MappedFile> contents;
};

struct Bundle {
  std::string directory;
  /// SHA-256 of all its files (docs/reference/bundle.md): equal for equal bundles and on all ranks
  /// of a job. --expect-digest compares it.
  std::string digest;
  std::string model, precision;
  int64_t batch = 0;         ///< rows of a step, each of samplesPerRow samples
  int64_t samplesPerRow = 1; ///< > 1 if the model combines groups of samples
  int64_t sequence = 0;
  int64_t samples() const { return batch * samplesPerRow; } ///< samples of a step
  std::vector<BundleDevice> devices;
  std::string plan;          ///< plan.json
  std::string cluster;       ///< cluster.yaml
  bundle::Topology topology; ///< without nodes if the bundle does not describe them
  bundle::ModelSummary summary;
  bundle::FunctionLibrary functions; ///< functions of the first target; the other targets have the
                                     ///< same functions with the same arguments
  std::vector<bundle::FunctionLibrary> otherTargets; ///< targets 1, 2, ...
  std::vector<bundle::Program> programs;             ///< one per device
  std::vector<bundle::Program> hostStaged; ///< the same step without direct transfers if `programs`
                                           ///< has some; otherwise empty
  std::vector<WeightSource> weights;       ///< one per ParameterInfo, in its order
  bundle::HubModel hub;
  KernelObjects kernels; ///< empty if the bundle is only simulated

  const bundle::FunctionLibrary &target(uint32_t index) const {
    return index == 0 ? functions : otherTargets[index - 1];
  }
  const bundle::FunctionLibrary &functionsOf(uint32_t device) const {
    return target(devices[device].target);
  }

  /// Switches to the programs without direct transfers.
  void useStaged() {
    programs.swap(hostStaged);
    hostStaged.clear();
  }
};

enum class BundleUse : uint8_t {
  Execute,
  Simulate, ///< weights and kernels are neither read nor checked, and may be missing
};

/// Reads a bundle and checks it: format version, presence and digest of files, consistency of
/// values that several files contain, and that all indices, ranges and regions of the programs are
/// within bounds.
Result<Bundle> loadBundle(const std::string &directory, BundleUse use = BundleUse::Execute);

/// Reads a bundle that is not in a directory: `open` returns the file at a path below `directory`.
Result<Bundle> loadBundle(const std::string &directory,
                          const std::function<Result<MappedFile>(const std::string &path)> &open,
                          BundleUse use = BundleUse::Execute);

/// Checks the programs against each other. For programs that were not loaded from a bundle (tests).
/// The two ends of every transfer must match.
Status checkPrograms(const Bundle &bundle);

/// Returns whether groups are updated before all gradients are known (state.optimizer_in_backward
/// of the plan). Options that depend on all gradients are then not possible.
bool commitsByGroup(const Bundle &bundle);

/// Repeats the compiler's verification (docs/internals/verifier.md): the programs compute what plan
/// and summary specify, without races. Call it after loadBundle, in one process of a job: its ranks
/// compare the digests of their bundles.
Status verifyBundle(const Bundle &bundle, unsigned threads);

/// Returns the 0-based node of every device of the bundle, in the order of cluster.yaml; empty if
/// the bundle has no cluster description.
Result<std::vector<uint32_t>> nodesOfDevices(const Bundle &bundle);

/// Returns the GPU that cluster.yaml specifies for every device of the bundle ('gpu': UUID or PCI
/// address); "": not specified.
Result<std::vector<std::string>> gpusOfDevices(const Bundle &bundle);

/// Compares the bundle with a cluster description (YAML): both must have the same devices in the
/// same order.
Status checkCluster(const Bundle &bundle, const std::string &clusterFile);
Status checkCluster(const Bundle &bundle, const MappedFile &clusterFile);

/// Returns "F(cell 3, units 0-2, samples 8-16)", "send to b", for messages and traces.
std::string describeInstruction(const Bundle &bundle, uint32_t device,
                                const bundle::Instruction &instruction);

} // namespace zorse::runtime
