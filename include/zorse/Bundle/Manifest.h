// manifest.json of a bundle, and the digest of the whole bundle. Tools and runtime read both with
// this code. docs/reference/bundle.md describes them.
#pragma once

#include "zorse/Base/Status.h"

#include "bundle.pb.h"

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace zorse::bundle {

/// Raised whenever bundles of the version before would be misunderstood.
inline constexpr int kFormatVersion = 9;
/// Says the digest of the bundle, as sha256sum writes it: "<digest>  manifest.json".
inline constexpr const char *kDigestFile = "manifest.sha256";

/// A device as the runtime starts it.
struct BundleDevice {
  std::string name;
  std::string kind = "cpu";
  int threads = 1;
  uint64_t memory = 0;   ///< bytes; 0: not limited.
  uint32_t target = 0;   ///< index of its function library
  int32_t d2dGroup = -1; ///< devices with the same number exchange data between their memories
                         ///< (Program queues of kind DEVICE_TO_DEVICE); -1: with no device
};

/// Of the function library of a target: "functions.pb", "functions.1.pb", ...
std::string functionsFile(uint32_t target);

/// Of the program of a device, and of the one that takes its place where direct transfers cannot
/// be: "programs/0.pb", "host_staged/0.pb".
std::string programFile(uint32_t device);
std::string stagedFile(uint32_t device);

/// Returns the reason why the libraries of two targets cannot be in one bundle: programs, plan and
/// verifier need one list of functions with one list of arguments. Empty if they can.
std::string differentArguments(const FunctionLibrary &one, const FunctionLibrary &other);

struct Manifest {
  std::string digest; ///< SHA-256 of manifest.json, which contains the SHA-256 of every other file:
                      ///< the digest of the whole bundle
  std::string model, precision;
  int64_t batch = 0, sequence = 0;
  std::vector<BundleDevice> devices;
  std::string training;                     ///< see trainingText
  std::map<std::string, std::string> files; ///< relative path -> SHA-256, 64 hexadecimal digits
};

/// Reads the bytes of the file at a path.
using ReadFile = std::function<Result<std::string>(const std::string &path)>;

/// Reads manifest.json and compares it with its digest. Errors contain the location, the expected
/// value and how to fix it.
Result<Manifest> readManifest(const std::string &directory, const ReadFile &read);

/// Describes the first contradiction between these files: batch, devices, precision, names,
/// training options. Empty if they agree.
std::string contradiction(const Manifest &manifest, const std::string &plan,
                          const ModelSummary &summary);

/// Formats options with their names in the schema, as JSON in one line.
std::string trainingText(const TrainingOptions &options);

/// Whether a message contains only fields of the schema. Unknown fields would otherwise be dropped
/// silently.
bool knownFieldsOnly(const google::protobuf::Message &message);

/// Returns the SHA-256 of the bytes as 64 hexadecimal digits.
std::string sha256(std::string_view bytes);

/// Computes the same hash from several buffers.
class Sha256 {
public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256 &) = delete;
  Sha256 &operator=(const Sha256 &) = delete;
  void update(std::string_view bytes);
  std::string finish();

private:
  void *context_;
};

} // namespace zorse::bundle
