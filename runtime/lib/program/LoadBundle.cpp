// Reading a bundle: files first (present, right checksum, right version), then what they say.
#include "zorse/runtime/Bundle.h"
#include "zorse/runtime/MappedFile.h"

#include <nlohmann/json.hpp>
#include <xxhash.h>

#include <map>
#include <sys/stat.h>

using namespace zorse;
using namespace zorse::runtime;
using nlohmann::json;

namespace {

class Loader {
public:
  explicit Loader(const std::string &directory) { bundle_.directory = directory; }

  Result<Bundle> load() {
    Status status = readManifest();
    for (Status (Loader::*step)() : {&Loader::readPlain, &Loader::readPrograms, &Loader::readWeights})
      if (status.succeeded())
        status = (this->*step)();
    if (status.failed())
      return status;
    if (Status check = checkPrograms(bundle_); check.failed())
      return check;
    return std::move(bundle_);
  }

private:
  std::string path(const std::string &name) const { return bundle_.directory + "/" + name; }

  Status readManifest() {
    struct stat info = {};
    if (::stat(bundle_.directory.c_str(), &info) != 0 || !S_ISDIR(info.st_mode))
      return userError(bundle_.directory + ": expects a bundle, a directory that zorse-compile wrote");
    std::string name = path("manifest.json");
    Result<MappedFile> file = MappedFile::open(name);
    if (file.failed())
      return file.error();
    bundle_.hash = hashOf(*file);
    try {
      const char *text = reinterpret_cast<const char *>(file->data());
      json manifest = json::parse(text, text + file->size());
      if (int64_t version = manifest.at("format_version"); version != 1)
        return userError(name + ": expects format version 1, got " + std::to_string(version) + "; compile the model again with this version of Zorse");
      bundle_.model = manifest.at("model");
      bundle_.precision = manifest.at("precision");
      bundle_.batch = manifest.at("batch");
      bundle_.sequence = manifest.at("sequence");
      for (const json &device : manifest.at("devices"))
        bundle_.devices.push_back({device.at("name"), device.at("kind"), device.at("threads"), device.value("memory", uint64_t(0))});
      files_ = manifest.at("files").get<std::map<std::string, std::string>>();
    } catch (const json::exception &exception) {
      return userError(name + ": is not the manifest of a bundle: " + exception.what());
    }
    if (bundle_.batch < 1 || bundle_.batch > (int64_t(1) << 40) || bundle_.sequence < 0)
      return userError(name + ": expects a batch of at least 1 and a sequence length, got " + std::to_string(bundle_.batch) + " and " + std::to_string(bundle_.sequence));
    if (bundle_.devices.empty())
      return userError(name + ": names no device");
    for (const BundleDevice &device : bundle_.devices)
      if (device.threads < 1 || device.threads > 4096)
        return userError(name + ": device '" + device.name + "': expects 1 to 4096 threads, got " + std::to_string(device.threads));
    for (const auto &[file, hash] : files_)
      if (Status status = checkFile(file, hash); status.failed())
        return status;
    return Status::success();
  }

  static std::string hashOf(const MappedFile &file) {
    char text[17];
    snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(XXH64(file.data(), file.size(), 0)));
    return text;
  }

  Status checkFile(const std::string &name, const std::string &expected) {
    if (name.empty() || name[0] == '/' || name.find("..") != std::string::npos)
      return userError(path("manifest.json") + ": names a file outside the bundle: '" + name + "'");
    Result<MappedFile> file = MappedFile::open(path(name));
    if (file.failed())
      return userError(file.message() + "; the bundle is incomplete, compile the model again");
    std::string found = hashOf(*file);
    if (expected != found)
      return userError(path(name) + ": checksum is " + found + ", the manifest says " + expected +
                       ": the file was changed or damaged; compile the model again");
    return Status::success();
  }

  Result<MappedFile> openListed(const std::string &name) {
    if (!files_.count(name))
      return userError(path("manifest.json") + ": does not list " + name + "; compile the model again");
    return MappedFile::open(path(name));
  }

  template <typename Message> Status readMessage(const std::string &name, Message &message) {
    Result<MappedFile> file = openListed(name);
    if (file.failed())
      return file.error();
    if (file->size() > size_t(INT32_MAX) || !message.ParseFromArray(file->data(), static_cast<int>(file->size())))
      return userError(path(name) + ": cannot be decoded; compile the model again");
    return Status::success();
  }

  Status readText(const std::string &name, std::string &text) {
    Result<MappedFile> file = openListed(name);
    if (file.failed())
      return file.error();
    text.assign(reinterpret_cast<const char *>(file->data()), file->size());
    return Status::success();
  }

  Status readPlain() {
    if (Status status = readText("plan.json", bundle_.plan); status.failed())
      return status;
    if (files_.count("cluster.yaml"))
      if (Status status = readText("cluster.yaml", bundle_.cluster); status.failed())
        return status;
    if (Status status = readMessage("summary.pb", bundle_.summary); status.failed())
      return status;
    if (Status status = readMessage("bodies.pb", bundle_.bodies); status.failed())
      return status;
    for (const std::string &object : bundle_.bodies.objects())
      if (std::string name = "kernels/" + bundle_.bodies.arch() + "/" + object; !files_.count(name))
        return userError(path("manifest.json") + ": does not list " + name + ", which the bodies need; compile the model again");
    return Status::success();
  }

  Status readPrograms() {
    bundle_.programs.resize(bundle_.devices.size());
    for (size_t i = 0; i < bundle_.devices.size(); ++i)
      if (Status status = readMessage("programs/" + std::to_string(i) + ".pb", bundle_.programs[i]); status.failed())
        return status;
    return Status::success();
  }

  Status readWeights() {
    std::string text, name = path("weights.json");
    if (Status status = readText("weights.json", text); status.failed())
      return status;
    std::map<std::string, WeightSource> sources;
    try {
      json weights = json::parse(text);
      for (const json &entry : weights.at("parameters")) {
        WeightSource source;
        source.name = entry.at("name");
        source.file = entry.at("file");
        source.offset = entry.at("offset");
        source.bytes = entry.at("bytes");
        source.type = entry.at("type");
        if (entry.contains("shape"))
          source.shape = entry.at("shape").get<std::vector<int64_t>>();
        if (entry.contains("permutation"))
          source.permutation = entry.at("permutation").get<std::vector<int64_t>>();
        if (source.file.empty() || source.file[0] != '/')
          source.file = path(source.file);
        sources[source.name] = source;
      }
    } catch (const json::exception &exception) {
      return userError(name + ": is not the weights list of a bundle: " + exception.what());
    }
    for (const bundle::ParameterInfo &parameter : bundle_.summary.parameters()) {
      auto found = sources.find(parameter.name());
      if (found == sources.end())
        return userError(name + ": has no bytes for parameter '" + parameter.name() + "'");
      bundle_.weights.push_back(found->second);
    }
    return Status::success();
  }

  Bundle bundle_;
  std::map<std::string, std::string> files_; ///< relative path -> XXH64
};

} // namespace

Result<Bundle> zorse::runtime::loadBundle(const std::string &directory) {
  std::string clean = directory;
  while (clean.size() > 1 && clean.back() == '/')
    clean.pop_back();
  return Loader(clean).load();
}
