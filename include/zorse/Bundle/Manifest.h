// manifest.json of a bundle, and the digest of everything in it: read by one rule by the tools and by the runtime. docs/bundle.md describes both.
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
inline constexpr int kFormatVersion = 7;
/// Says the digest of the bundle, as sha256sum writes it: "<digest>  manifest.json".
inline constexpr const char *kDigestFile = "manifest.sha256";

/// One device as the runtime starts it.
struct BundleDevice {
  std::string name;
  std::string kind = "cpu";
  int threads = 1;
  uint64_t memory = 0; ///< bytes; 0: not limited.
  uint32_t target = 0; ///< which body library it runs
  int32_t direct = -1; ///< devices of one number exchange from memory to memory (Program queues of kind DIRECT); -1: with nobody
};

/// Of the body library of a target: "functions.pb", "functions.1.pb", ...
std::string bodiesFile(uint32_t target);

/// Of the program of a device, and of the one that takes its place where direct transfers cannot be: "programs/0.pb", "host_staged/0.pb".
std::string programFile(uint32_t device);
std::string stagedFile(uint32_t device);

/// What keeps two targets' libraries from being of one bundle: programs, plan and verifier know one list of bodies with one list of slots. Empty:
/// nothing.
std::string differentSlots(const BodyLibrary &one, const BodyLibrary &other);

struct Manifest {
  std::string digest; ///< SHA-256 of manifest.json, which has the SHA-256 of every other file: of everything in the bundle
  std::string model, precision;
  int64_t batch = 0, sequence = 0;
  std::vector<BundleDevice> devices;
  std::string training;                     ///< trainingText
  std::map<std::string, std::string> files; ///< relative path -> SHA-256, 64 hexadecimal digits
};

/// The bytes of the file at a path.
using ReadFile = std::function<Result<std::string>(const std::string &path)>;

/// Reads manifest.json and compares it with its digest. Errors name the place, what was expected and the remedy.
Result<Manifest> readManifest(const std::string &directory, const ReadFile &read);

/// What one of the files says against another, where both say it: batch, devices, precision, names, training options. Empty: nothing.
std::string contradiction(const Manifest &manifest, const std::string &plan, const ModelSummary &summary);

/// Options under their names in the schema, as JSON in one line.
std::string trainingText(const TrainingOptions &options);

/// Whether a message holds nothing but fields of the schema: one that nobody knows would be left out without a word.
bool knownFieldsOnly(const google::protobuf::Message &message);

/// "64 hexadecimal digits": SHA-256 of the bytes.
std::string sha256(std::string_view bytes);

/// The same of bytes that come in pieces.
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
