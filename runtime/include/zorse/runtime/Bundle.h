// A bundle in memory, checked: whoever holds a Bundle may index by what it says. docs/bundle.md describes the files.
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
  uint64_t memory = 0; ///< bytes; 0: not limited.
  uint32_t target = 0; ///< which body library it runs
  int32_t direct = -1; ///< devices of one number exchange from memory to memory; -1: with nobody
};

/// Where the initial bytes of one parameter are.
struct WeightSource {
  std::string name; ///< ParameterInfo.name
  std::string file; ///< resolved path
  uint64_t offset = 0, bytes = 0;
  std::string type;                 ///< "f32", "f64", "f16", "bf16", "i64", "i32", "i16", "i8", "u8", "i1"
  std::vector<int64_t> shape;       ///< as stored, and as the ONNX file has it
  std::vector<int64_t> permutation; ///< parameter dimension i is stored dimension permutation[i]; empty: as stored
  bundle::HubFact hub;              ///< relative to `shape`
  /// Of a file of the bundle: as it was hashed, whatever lies there now. Null: the model's own file, to be opened where it is.
  std::shared_ptr<const MappedFile> contents;
};

struct Bundle {
  std::string directory;
  std::string digest; ///< SHA-256 of everything in it (docs/bundle.md): equal for equal bundles, on all ranks of a job, and what --expect names
  std::string model, precision;
  int64_t batch = 0;         ///< rows of a step, each of samplesPerRow samples
  int64_t samplesPerRow = 1; ///< more where batch norm takes its statistics over groups
  int64_t sequence = 0;
  int64_t samples() const { return batch * samplesPerRow; } ///< of a step
  std::vector<BundleDevice> devices;
  std::string plan;          ///< plan.json
  std::string cluster;       ///< cluster.yaml
  bundle::Topology topology; ///< without nodes where the bundle says nothing about it
  bundle::ModelSummary summary;
  bundle::BodyLibrary bodies;                    ///< of the first target: the others have the same bodies with the same slots.
  std::vector<bundle::BodyLibrary> otherTargets; ///< 1, 2, ...
  std::vector<bundle::Program> programs;         ///< one per device
  std::vector<bundle::Program> staged;           ///< the same step without direct transfers, where `programs` has some; else empty
  std::vector<WeightSource> weights;             ///< one per ParameterInfo, in its order
  bundle::HubModel hub;
  KernelObjects kernels; ///< none where the bundle is only simulated

  const bundle::BodyLibrary &target(uint32_t index) const { return index == 0 ? bodies : otherTargets[index - 1]; }
  const bundle::BodyLibrary &bodiesOf(uint32_t device) const { return target(devices[device].target); }

  /// Runs the step without direct transfers from now on.
  void useStaged() {
    programs.swap(staged);
    staged.clear();
  }
};

enum class BundleUse : uint8_t {
  Execute,
  Simulate, ///< weights and kernels are neither read nor checked, and need not be there
};

/// Reads a bundle and checks everything: version, presence and digest of files, that files agree where two say the same, and that no index, range or
/// region of a program lies outside what it points into.
Result<Bundle> loadBundle(const std::string &directory, BundleUse use = BundleUse::Execute);

/// The same for a bundle that is not in a directory: `open` yields the file at a path below `directory`.
Result<Bundle> loadBundle(const std::string &directory, const std::function<Result<MappedFile>(const std::string &path)> &open,
                          BundleUse use = BundleUse::Execute);

/// The check of one program against the others, for programs that were not loaded from a bundle (tests). Halves of transfers must match.
Status checkPrograms(const Bundle &bundle);

/// Whether groups are updated before the gradients of all are known (state.commit of the plan): nothing that all gradients decide can then be turned
/// on.
bool commitsByGroup(const Bundle &bundle);

/// What the compiler verified, verified again (docs/verifier.md): that the programs compute what plan and summary say, without races. After
/// loadBundle, by one process of a job: its ranks compare the digests of their bundles.
Status verifyBundle(const Bundle &bundle, unsigned threads);

/// The node of every device of the bundle, 0-based, as cluster.yaml counts them; empty where the bundle has no cluster description.
Result<std::vector<uint32_t>> nodesOfDevices(const Bundle &bundle);

/// What cluster.yaml says of the GPU that every device of the bundle is ('gpu': UUID or address on the PCI bus); "": nothing.
Result<std::vector<std::string>> gpusOfDevices(const Bundle &bundle);

/// Compares with a cluster description (YAML): the same devices in the same order.
Status checkCluster(const Bundle &bundle, const std::string &clusterFile);
Status checkCluster(const Bundle &bundle, const MappedFile &clusterFile);

/// "F(cell 3, units 0-2, samples 8-16)", "send to b": for messages and traces.
std::string describeEntry(const Bundle &bundle, uint32_t device, const bundle::Entry &entry);

} // namespace zorse::runtime
