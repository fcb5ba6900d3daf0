#include "zorse/Bundle/BundleReader.h"

#include "BundleFile.h"

#include <nlohmann/json.hpp>

#include <filesystem>
#include <limits>

namespace zorse::bundle {

namespace {

/// Reads a file that the manifest lists and compares its checksum.
bool readListed(const BundleView &bundle, const std::string &name, std::string &bytes, std::string &error) {
  auto listed = bundle.files.find(name);
  if (listed == bundle.files.end()) {
    error = bundle.directory + "/manifest.json: lists no " + name + ": the bundle is incomplete. Compile it again";
    return false;
  }
  if (!bundle.read(bundle.directory + "/" + name, bytes, error))
    return false;
  if (std::string found = hashOf(bytes); found != listed->second) {
    error = bundle.directory + "/" + name + ": checksum is " + found + ", the manifest expects " + listed->second +
            ": the file was changed or damaged. Compile the bundle again";
    return false;
  }
  return true;
}

template <typename Message> bool readMessage(const BundleView &bundle, const std::string &name, Message &message, std::string &error) {
  std::string bytes;
  if (!readListed(bundle, name, bytes, error))
    return false;
  if (!message.ParseFromString(bytes)) {
    error = bundle.directory + "/" + name + ": expects a serialised " + message.GetTypeName() + ", got something else";
    return false;
  }
  return true;
}

/// The JSON library would convert real numbers, and wrap large ones.
template <typename T> bool whole(const nlohmann::json &value, T &out) {
  bool fits = value.is_number_unsigned()  ? value.get<uint64_t>() <= uint64_t(std::numeric_limits<T>::max())
              : value.is_number_integer() ? std::is_signed_v<T> && value.get<int64_t>() >= int64_t(std::numeric_limits<T>::min())
                                          : false;
  if (fits)
    out = value.get<T>();
  return fits;
}

} // namespace

int BundleView::findDevice(const std::string &name) const {
  for (size_t i = 0; i < devices.size(); ++i)
    if (devices[i].name == name || std::to_string(i) == name)
      return static_cast<int>(i);
  return -1;
}

std::optional<BundleView> readBundle(const std::string &directory, std::string &error) {
  std::error_code none;
  if (!std::filesystem::is_directory(directory, none)) {
    error = directory + ": expects a bundle, a directory that zorse-compile wrote";
    return std::nullopt;
  }
  return readBundle(directory, error, readFile);
}

std::optional<BundleView> readBundle(const std::string &directory, std::string &error, ReadFile read) {
  BundleView bundle;
  bundle.directory = directory;
  bundle.read = std::move(read);
  const std::string path = directory + "/manifest.json";
  std::string text;
  if (!bundle.read(path, text, error))
    return std::nullopt;
  try {
    nlohmann::json manifest = nlohmann::json::parse(text);
    int64_t version = 0;
    if (!whole(manifest.at("format_version"), version) || version != 1) {
      error = path + ": expects format version 1, got " + std::to_string(version) + ". Compile the bundle with this version of Zorse";
      return std::nullopt;
    }
    bundle.model = manifest.at("model");
    bundle.precision = manifest.at("precision");
    bool good = whole(manifest.at("batch"), bundle.batch) && whole(manifest.at("sequence"), bundle.sequence);
    for (const auto &device : manifest.at("devices")) {
      bundle.devices.push_back({device.at("name"), device.at("kind"), 1, 0});
      good = good && whole(device.at("threads"), bundle.devices.back().threads) && whole(device.at("memory"), bundle.devices.back().memory);
    }
    if (!good) {
      error = path + ": expects whole numbers as batch, sequence, threads and memory. Compile the bundle again";
      return std::nullopt;
    }
    bundle.files = manifest.at("files");
  } catch (const nlohmann::json::exception &exception) {
    error = path + ": expects the manifest of a bundle: " + exception.what();
    return std::nullopt;
  }
  if (!readListed(bundle, "plan.json", bundle.plan, error) || !readMessage(bundle, "summary.pb", bundle.summary, error) ||
      !readMessage(bundle, "bodies.pb", bundle.bodies, error))
    return std::nullopt;
  return bundle;
}

std::optional<Program> readProgram(const BundleView &bundle, int device, std::string &error) {
  Program program;
  if (!readMessage(bundle, "programs/" + std::to_string(device) + ".pb", program, error))
    return std::nullopt;
  return program;
}

} // namespace zorse::bundle
