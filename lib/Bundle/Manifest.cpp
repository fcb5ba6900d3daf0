#include "zorse/Bundle/Manifest.h"

#include "LaunchPointers.h"

#include "zorse/Bundle/ContentHash.h"
#include "zorse/Summary/Summary.h"

#include <google/protobuf/descriptor.h>
#include <nlohmann/json.hpp>
#include <openssl/evp.h>

#include <limits>

using nlohmann::json;

namespace zorse::bundle {

namespace {

/// Used and caught only in this file.
struct JsonError {
  std::string message;
};

/// Formats a value for messages. Lists and objects may be nested too deeply to be printed; they are
/// printed only if `structured` says that this is safe.
std::string shown(const json &value, bool structured = false) {
  return value.is_structured() && !structured
             ? "something else"
             : value.dump(-1, ' ', false, json::error_handler_t::replace);
}

/// Converts strictly: the JSON library would convert floating-point numbers and wrap large
/// integers.
template <typename T> T whole(const json &object, const char *name) {
  const json &value = object.at(name);
  bool fits =
      value.is_number_unsigned() ? value.get<uint64_t>() <= uint64_t(std::numeric_limits<T>::max())
      : value.is_number_integer()
          ? std::is_signed_v<T> && value.get<int64_t>() >= int64_t(std::numeric_limits<T>::min())
          : false;
  if (!fits)
    throw JsonError{std::string(name) + ": expects a whole number" +
                    (std::is_signed_v<T> ? "" : " of at least 0") +
                    (value.is_structured() ? "" : ", got " + shown(value))};
  return value.get<T>();
}

/// Returns the command that compiles the bundle again, with the manifest's values as far as they
/// can be read.
std::string compileAgain(const std::string &directory, const json &manifest) {
  auto number = [&](const char *name) {
    return manifest.is_object() && manifest.contains(name) && manifest[name].is_number_integer()
               ? manifest[name].dump()
               : std::string();
  };
  const bool old = manifest.is_object() && manifest.contains("batch"); // up to version 6
  std::string batch = number(old ? "batch" : "global_batch_size"),
              sequence = number(old ? "sequence" : "seq_length");
  return "compile it again: zorse-compile MODEL.onnx --cluster " + directory +
         "/cluster.yaml --plan " + directory + "/plan.json" +
         (batch.empty() ? "" : " --global-batch-size " + batch) +
         (sequence.empty() || sequence == "0" ? "" : " --seq-length " + sequence) + " -o NEW.zorse";
}

/// Checks the format version of the manifest.
void checkVersion(const std::string &directory, const std::string &text) {
  json manifest = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!manifest.is_object() || !manifest.contains("format_version"))
    return; // parse() reports the error
  const json &version = manifest["format_version"];
  if (!version.is_number_integer() || version != kFormatVersion)
    throw JsonError{"expects format version " + std::to_string(kFormatVersion) + ", got " +
                    shown(version) + ": another version of Zorse wrote the bundle; " +
                    compileAgain(directory, manifest)};
}

void parse(const std::string &text, Manifest &out) {
  json manifest = json::parse(text);
  (void)whole<int64_t>(manifest, "format_version");
  out.model = manifest.at("model");
  out.precision = manifest.at("precision");
  out.batch = whole<int64_t>(manifest, "global_batch_size");
  out.sequence = whole<int64_t>(manifest, "seq_length");
  for (const json &device : manifest.at("devices"))
    out.devices.push_back({device.at("name"), device.at("kind"), whole<int>(device, "threads"),
                           whole<uint64_t>(device, "memory"),
                           device.contains("target") ? whole<uint32_t>(device, "target") : 0,
                           device.contains("device_to_device_group")
                               ? whole<int32_t>(device, "device_to_device_group")
                               : -1});
  json training = manifest.at("training");
  if (training.is_object() && training.contains("plain_epsilon")) { // the name in earlier versions
    training["epsilon_before_bias_correction"] = training["plain_epsilon"];
    training.erase("plain_epsilon");
  }
  for (const json &value : training)
    if (!training.is_object() || value.is_structured())
      throw JsonError{"training: expects options by name"};
  out.training = shown(training, /*structured=*/true);
  out.files = manifest.at("files").get<std::map<std::string, std::string>>();
  if (out.batch < 1 || out.batch > (int64_t(1) << 40) || out.sequence < 0)
    throw JsonError{"expects a batch of at least 1 and a sequence length, got " +
                    std::to_string(out.batch) + " and " + std::to_string(out.sequence)};
  if (out.devices.empty())
    throw JsonError{"names no device"};
  for (const BundleDevice &device : out.devices)
    if (device.target >= out.devices.size())
      throw JsonError{"device '" + device.name + "': expects one of at most " +
                      std::to_string(out.devices.size()) + " targets, got " +
                      std::to_string(device.target)};
    else if (device.threads < 1 || device.threads > 4096)
      throw JsonError{"device '" + device.name + "': expects 1 to 4096 threads, got " +
                      std::to_string(device.threads)};
  for (const auto &[name, hash] : out.files)
    if (name.empty() || name[0] == '/' || name.find("..") != std::string::npos ||
        name.find('\0') != std::string::npos)
      throw JsonError{"names a file outside the bundle: '" + name + "'"};
}

json toJson(const TrainingOptions &options) {
  using google::protobuf::FieldDescriptor;
  json out = json::object();
  const google::protobuf::Reflection *reflection = options.GetReflection();
  const google::protobuf::Descriptor *descriptor = options.GetDescriptor();
  for (int i = 0; i < descriptor->field_count(); ++i) {
    const FieldDescriptor *field = descriptor->field(i);
    json &value = out[field->name()];
    switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_DOUBLE:
      value = reflection->GetDouble(options, field);
      break;
    case FieldDescriptor::CPPTYPE_INT64:
      value = reflection->GetInt64(options, field);
      break;
    case FieldDescriptor::CPPTYPE_UINT64:
      value = reflection->GetUInt64(options, field);
      break;
    case FieldDescriptor::CPPTYPE_BOOL:
      value = reflection->GetBool(options, field);
      break;
    case FieldDescriptor::CPPTYPE_ENUM: {
      // By number: a message from outside may contain a value without a name.
      const google::protobuf::EnumValueDescriptor *known =
          field->enum_type()->FindValueByNumber(reflection->GetEnumValue(options, field));
      std::string name = known ? std::string(known->name())
                               : std::to_string(reflection->GetEnumValue(options, field));
      for (char &c : name)
        c = static_cast<char>(tolower(c));
      value = name;
      break;
    }
    default:
      break;
    }
  }
  return out;
}

} // namespace

std::string functionsFile(uint32_t target) {
  return target == 0 ? "functions.pb" : "functions." + std::to_string(target) + ".pb";
}

std::string programFile(uint32_t device) { return "programs/" + std::to_string(device) + ".pb"; }
std::string stagedFile(uint32_t device) { return "host_staged/" + std::to_string(device) + ".pb"; }

static std::string differentSegments(const CompiledFunction &one, const CompiledFunction &other) {
  if (one.launches().empty() || other.launches().empty()) // devices of one target do not call it
    return {};
  const auto a = argumentsOfSegments(one), b = argumentsOfSegments(other);
  if (a.size() != b.size())
    return "has another number of exchanges";
  for (size_t s = 0; s < a.size(); ++s)
    for (int i = 0; i < one.arguments_size(); ++i)
      if (a[s][size_t(i)] != b[s][size_t(i)])
        return (b[s][size_t(i)] ? "accesses" : "does not access") + std::string(" argument '") +
               other.arguments(i).name() + "' after " + std::to_string(s) + " exchanges";
  return {};
}

std::string differentArguments(const FunctionLibrary &one, const FunctionLibrary &other) {
  if (one.functions_size() != other.functions_size())
    return std::to_string(other.functions_size()) + " functions, expected " +
           std::to_string(one.functions_size());
  for (int b = 0; b < one.functions_size(); ++b) {
    const CompiledFunction &a = one.functions(b), &c = other.functions(b);
    bool same = a.name() == c.name() && a.arguments_size() == c.arguments_size();
    for (int s = 0; s < a.arguments_size() && same; ++s)
      same = a.arguments(s).SerializeAsString() == c.arguments(s).SerializeAsString();
    if (!same)
      return "function " + std::to_string(b) + " ('" + c.name() +
             "') differs in name or arguments from '" + a.name() + "'";
    if (std::string problem = differentSegments(a, c); !problem.empty())
      return "function " + std::to_string(b) + " ('" + c.name() + "') " + problem;
  }
  return {};
}

std::string trainingText(const TrainingOptions &options) { return toJson(options).dump(); }

Result<Manifest> readManifest(const std::string &directory, const ReadFile &read) {
  const std::string path = directory + "/manifest.json", digestPath = directory + "/" + kDigestFile;
  Result<std::string> text = read(path);
  if (text.failed())
    return text.error();
  try {
    checkVersion(directory, *text);
    Result<std::string> stated = read(digestPath);
    if (stated.failed())
      return userError(stated.message() + "; without this file (the bundle's digest), the bundle "
                                          "is incomplete: compile the model again");
    Manifest manifest;
    manifest.digest = sha256(*text);
    if (*stated != manifest.digest + "  manifest.json\n")
      return userError(path + ": its SHA-256 is " + manifest.digest + "; a different one is in " +
                       digestPath +
                       ": one of the two files was changed or damaged; compile the model again");
    parse(*text, manifest);
    return manifest;
  } catch (const json::exception &exception) {
    return userError(path + ": is not the manifest of a bundle: " + exception.what());
  } catch (const JsonError &error) {
    return userError(path + ": " + error.message);
  }
}

std::string contradiction(const Manifest &manifest, const std::string &planText,
                          const ModelSummary &summary) {
  auto differ = [](const std::string &what, const std::string &one, const std::string &a,
                   const std::string &other, const std::string &b) {
    return a == b ? std::string()
                  : what + ": " + one + " says " + a + ", " + other + " says " + b +
                        ": the files are from different compilations; compile the model again";
  };
  const std::string here = "manifest.json", there = "summary.pb", planned = "plan.json";
  std::vector<std::string> found;
  if (!summary.name().empty())
    found.push_back(
        differ("model", here, "'" + manifest.model + "'", there, "'" + summary.name() + "'"));
  found.push_back(
      differ("precision", here, manifest.precision, there, precisionOf(summary).name()));
  found.push_back(
      differ("training options", here, manifest.training, there, trainingText(summary.training())));

  json plan = json::parse(planText, nullptr, /*allow_exceptions=*/false, /*ignore_comments=*/true);
  if (!plan.is_object() || !plan.contains("global_batch_size") || !plan.contains("devices") ||
      !plan["devices"].is_array())
    return "plan.json: expects a plan with global_batch_size and devices; compile the model again";
  found.push_back(differ("global_batch_size", here, std::to_string(manifest.batch), planned,
                         shown(plan["global_batch_size"])));
  // As ValidatePlan.cpp does.
  if (plan.contains("model") &&
      (!plan["model"].is_string() ||
       differentModels(plan["model"].get<std::string>(), summary.content_hash())))
    found.push_back(differ("contents of the model", planned, shown(plan["model"]), there,
                           shown(summary.content_hash())));
  const json &devices = plan["devices"];
  found.push_back(differ("number of devices", here, std::to_string(manifest.devices.size()),
                         planned, std::to_string(devices.size())));
  for (size_t i = 0; i < std::min(devices.size(), manifest.devices.size()); ++i) {
    const json &device = devices[i];
    const json name = device.is_object() && device.contains("name") ? device["name"] : device;
    found.push_back(differ("device " + std::to_string(i), here, shown(manifest.devices[i].name),
                           planned, shown(name)));
    if (device.is_object() && device.contains("memory"))
      found.push_back(differ("memory of device '" + manifest.devices[i].name + "'", here,
                             std::to_string(manifest.devices[i].memory), planned,
                             shown(device["memory"])));
  }
  for (const std::string &one : found)
    if (!one.empty())
      return one;
  return {};
}

bool knownFieldsOnly(const google::protobuf::Message &message) {
  using google::protobuf::FieldDescriptor;
  const google::protobuf::Reflection *reflection = message.GetReflection();
  if (!reflection->GetUnknownFields(message).empty())
    return false;
  std::vector<const FieldDescriptor *> fields;
  reflection->ListFields(message, &fields);
  for (const FieldDescriptor *field : fields) {
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE || field->is_map()) // maps contain
                                                                                  // numbers by name
      continue;
    if (!field->is_repeated()) {
      if (!knownFieldsOnly(reflection->GetMessage(message, field)))
        return false;
      continue;
    }
    for (int i = 0, n = reflection->FieldSize(message, field); i < n; ++i)
      if (!knownFieldsOnly(reflection->GetRepeatedMessage(message, field, i)))
        return false;
  }
  return true;
}

Sha256::Sha256() : context_(EVP_MD_CTX_new()) {
  EVP_DigestInit_ex(static_cast<EVP_MD_CTX *>(context_), EVP_sha256(), nullptr);
}
Sha256::~Sha256() { EVP_MD_CTX_free(static_cast<EVP_MD_CTX *>(context_)); }
void Sha256::update(std::string_view bytes) {
  EVP_DigestUpdate(static_cast<EVP_MD_CTX *>(context_), bytes.data(), bytes.size());
}

std::string Sha256::finish() {
  static const char digits[] = "0123456789abcdef";
  unsigned char hash[32];
  EVP_DigestFinal_ex(static_cast<EVP_MD_CTX *>(context_), hash, nullptr);
  std::string text;
  for (unsigned char byte : hash)
    text += {digits[byte >> 4], digits[byte & 15]};
  return text;
}

std::string sha256(std::string_view bytes) {
  Sha256 hash;
  hash.update(bytes);
  return hash.finish();
}

} // namespace zorse::bundle
