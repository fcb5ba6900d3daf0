// Writes a bundle: the directory that the runtime executes. docs/bundle.md describes the files.
#pragma once

#include "zorse/Bundle/HubFacts.h"
#include "zorse/Bundle/Manifest.h"

#include "bundle.pb.h"

#include <cstdint>
#include <string>
#include <vector>

namespace zorse::bundle {

/// Where the initial bytes of a parameter are: a range of a file, or here.
struct WeightData {
  std::string name;                 ///< ParameterInfo.name
  std::string type = "f32";         ///< as stored: f32, f64, f16, bf16, i64, i32, i16, i8, u8 or i1
  std::vector<int64_t> shape;       ///< as stored
  std::vector<int64_t> permutation; ///< parameter dimension i is stored dimension permutation[i]; empty: as stored
  std::string file;                 ///< absolute path; empty: `bytes` holds the data
  uint64_t offset = 0;              ///< in `file`
  uint64_t size = 0;                ///< bytes in `file`
  std::string bytes;
  HubFact hub = {};
};

enum class WeightMode {
  Copy,     ///< the bundle holds all bytes (weights.safetensors): it can be moved.
  Reference ///< weights.json names the files of the model; only bytes that are in no file are written (constants.safetensors).
};

struct BundleContents {
  std::string model; ///< name, for people
  int64_t batch = 0, sequence = 0;
  std::string precision = "f32";     ///< "f32" or "f64"
  std::vector<BundleDevice> devices; ///< in the order of the plan
  std::string plan;                  ///< canonical plan.json
  std::string cluster;               ///< cluster.yaml as given
  Topology topology;                 ///< devices as here; without nodes: nothing is known
  ModelSummary summary;
  BodyLibrary bodies;                ///< of the first target
  std::vector<std::string> programs; ///< serialised deterministically, one per device (`serialize`)
  std::vector<std::string> staged;   ///< the same step by way of the host's memory, where a program has direct transfers; else empty
  std::string kernels;               ///< bytes of kernels/<arch>/<object>; empty: the bodies name no kernel
  struct Target {
    BodyLibrary bodies;
    std::string kernels;
  };
  std::vector<Target> otherTargets; ///< 1, 2, ...
  std::vector<WeightData> weights;
  WeightMode weightMode = WeightMode::Copy;
  HubModel hub;
};

/// The same bytes for equal messages, maps included.
std::string serialize(const google::protobuf::MessageLite &message);

/// Why `writeBundle` would refuse `directory` now; empty: nothing is in the way.
std::string whyNotWritable(const std::string &directory);

/// Writes `directory` whole or not at all: everything goes to a new directory beside it, which is then exchanged for it (OutputFolder.h). An existing
/// bundle of that name is replaced; anything else of that name, and a bundle with other files in it, is an error. Equal contents give equal bytes: no
/// times, and no paths except those of referenced weights.
/// \returns the SHA-256 of everything in it
Result<std::string> writeBundle(const BundleContents &contents, const std::string &directory);

} // namespace zorse::bundle
