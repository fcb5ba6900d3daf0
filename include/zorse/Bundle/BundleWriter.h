// Writes a bundle: the directory that the runtime executes. docs/reference/bundle.md describes the
// files.
#pragma once

#include "zorse/Bundle/HubFacts.h"
#include "zorse/Bundle/Manifest.h"

#include "bundle.pb.h"

#include <cstdint>
#include <string>
#include <vector>

namespace zorse::bundle {

/// Location of the initial bytes of a parameter: a range of a file, or a string.
struct WeightData {
  std::string name;         ///< ParameterInfo.name
  std::string type = "f32"; ///< type in the file: f32, f64, f16, bf16, i64, i32, i16, i8, u8 or i1
  std::vector<int64_t> shape;       ///< shape in the file
  std::vector<int64_t> permutation; ///< parameter dimension i is stored dimension permutation[i];
                                    ///< empty: no permutation
  std::string file;                 ///< absolute path; empty: the data is in `bytes`
  uint64_t offset = 0;              ///< in `file`
  uint64_t size = 0;                ///< bytes in `file`
  std::string bytes;
  HubFact hub = {};
};

enum class WeightMode {
  Copy,     ///< the bundle contains all bytes (weights.safetensors) and can be moved.
  Reference ///< weights.json refers to the files of the model; the bundle contains only bytes that
            ///< are in no file (constants.safetensors).
};

struct BundleContents {
  std::string model; ///< name for display
  int64_t batch = 0, sequence = 0;
  std::string precision = "f32";     ///< "f32" or "f64"
  std::vector<BundleDevice> devices; ///< in the order of the plan
  std::string plan;                  ///< canonical plan.json
  std::string cluster;               ///< cluster.yaml as given
  std::string profile;               ///< measured times with which the plan was made; empty: none
  Topology topology; ///< devices in the same order; without nodes: the topology is unknown
  ModelSummary summary;
  FunctionLibrary functions;         ///< of target 0
  std::vector<std::string> programs; ///< one per device, serialized deterministically (`serialize`)
  std::vector<std::string> hostStaged; ///< the same step with host staging, if a program has direct
                                       ///< transfers; else empty
  std::string kernels; ///< bytes of kernels/<arch>/<object>; empty: the functions launch no kernel
  struct Target {
    FunctionLibrary functions;
    std::string kernels;
  };
  std::vector<Target> otherTargets; ///< targets 1, 2, ...
  std::vector<WeightData> weights;
  WeightMode weightMode = WeightMode::Copy;
  HubModel hub;
};

/// Serializes deterministically: equal messages, including maps, give equal bytes.
std::string serialize(const google::protobuf::MessageLite &message);

/// Returns the reason why `writeBundle` would refuse `directory` now; empty if none is known.
std::string whyNotWritable(const std::string &directory);

/// Writes `directory` atomically: all files are written to a new directory next to it, which then
/// replaces it (OutputDirectory.h). An existing bundle with this name is replaced. Anything else
/// with this name, including a bundle with additional files, is an error. Equal contents give equal
/// bytes: files contain no times, and no paths except those of referenced weights. \returns the
/// SHA-256 of the bundle's contents
Result<std::string> writeBundle(const BundleContents &contents, const std::string &directory);

} // namespace zorse::bundle
