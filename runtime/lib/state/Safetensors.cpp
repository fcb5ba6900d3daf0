#include "zorse/runtime/Safetensors.h"

#include "zorse/Support/ShallowJson.h"
#include "zorse/runtime/OutputFile.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdio>
#include <cstring>

using namespace zorse::runtime;
using nlohmann::json;

namespace {

constexpr size_t kLongestName = 4096;           // names are printed in messages
constexpr uint64_t kLargestHeader = 100u << 20; // as in the reference implementation

struct HeaderTensor {
  std::string name, type;
  std::vector<int64_t> shape;
  uint64_t begin = 0, end = 0;
};

/// A parsed header would silently keep one of two tensors with the same name; duplicates are
/// therefore detected during parsing.
bool parseHeader(const char *text, size_t size, std::vector<HeaderTensor> &tensors, bool &isOnnx,
                 std::string &problem) {
  std::string duplicated;
  json header = zorse::parseShallow<json>(text, size, 5, &duplicated); // no valid header is nested
                                                                       // deeper
  if (header.is_discarded() || !header.is_object()) {
    problem = "its header is not a JSON object";
    return false;
  }
  if (!duplicated.empty()) {
    problem = "tensor '" + duplicated + "' is there twice";
    return false;
  }
  for (const auto &[name, entry] : header.items()) {
    if (name == "__metadata__") {
      auto [key, value] = *onnxNames().begin();
      isOnnx = entry.is_object() && entry.contains(key) && entry[key] == value;
      continue;
    }
    if (name.size() > kLongestName) {
      problem = "the name '" + name.substr(0, 40) + "...' of a tensor has " +
                std::to_string(name.size()) + " bytes, at most " + std::to_string(kLongestName) +
                " are supported";
      return false;
    }
    HeaderTensor tensor;
    tensor.name = name;
    auto bad = [&](const char *what) {
      problem = "tensor '" + tensor.name + "': " + what;
      return false;
    };
    if (!entry.is_object() || !entry.contains("dtype") || !entry["dtype"].is_string() ||
        !entry.contains("shape") || !entry["shape"].is_array() || !entry.contains("data_offsets") ||
        !entry["data_offsets"].is_array() || entry["data_offsets"].size() != 2)
      return bad("expects dtype, shape and data_offsets");
    tensor.type = entry["dtype"].get<std::string>();
    for (const json &dimension : entry["shape"]) {
      if (!dimension.is_number_unsigned() || dimension.get<uint64_t>() > uint64_t(INT64_MAX))
        return bad("expects dimensions that are not negative");
      tensor.shape.push_back(dimension.get<int64_t>());
    }
    if (!entry["data_offsets"][0].is_number_unsigned() ||
        !entry["data_offsets"][1].is_number_unsigned())
      return bad("expects data_offsets that are not negative");
    tensor.begin = entry["data_offsets"][0].get<uint64_t>();
    tensor.end = entry["data_offsets"][1].get<uint64_t>();
    tensors.push_back(std::move(tensor));
  }
  return true;
}

} // namespace

Result<SafetensorsFile> SafetensorsFile::open(const std::string &path) {
  Result<MappedFile> file = MappedFile::open(path);
  if (file.failed())
    return file.error();
  return parse(std::move(*file));
}

Result<SafetensorsFile> SafetensorsFile::parse(MappedFile file) {
  auto bad = [&](const std::string &what) {
    return userError(file.path() + ": is not a safetensors file: " + what);
  };

  if (file.size() < 8)
    return bad("it has " + std::to_string(file.size()) + " bytes, at least 8 are expected");
  uint64_t headerBytes = 0;
  for (int i = 0; i < 8; ++i)
    headerBytes |= uint64_t(file.data()[i]) << (8 * i);
  if (headerBytes > kLargestHeader || headerBytes > file.size() - 8)
    return bad("its header is said to have " + std::to_string(headerBytes) +
               " bytes, the file has " + std::to_string(file.size()));
  std::vector<HeaderTensor> tensors;
  std::string problem;
  bool isOnnx = false;
  if (!parseHeader(reinterpret_cast<const char *>(file.data()) + 8, headerBytes, tensors, isOnnx,
                   problem))
    return bad(problem);

  SafetensorsFile out;
  out.names_ = isOnnx ? Names::Onnx : Names::NotSaid;
  uint64_t dataBytes = file.size() - 8 - headerBytes, covered = 0;
  const std::byte *data = file.data() + 8 + headerBytes;
  std::stable_sort(tensors.begin(), tensors.end(),
                   [](const HeaderTensor &a, const HeaderTensor &b) {
                     return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
                   });
  for (const HeaderTensor &tensor : tensors) {
    std::optional<StoredType> type = storedTypeNamed(tensor.type);
    if (!type || tensor.type != safetensorsName(*type))
      return bad("tensor '" + tensor.name + "' has the unknown type '" + tensor.type + "'");
    std::optional<int64_t> count = elementCount(tensor.shape);
    int64_t bytes;
    if (!count || __builtin_mul_overflow(*count, int64_t(bytesOf(*type)), &bytes))
      return bad("tensor '" + tensor.name + "' is too large");
    if (tensor.begin != covered || tensor.end < tensor.begin || tensor.end > dataBytes)
      return bad("tensor '" + tensor.name + "' lies at bytes [" + std::to_string(tensor.begin) +
                 ", " + std::to_string(tensor.end) + ") of " + std::to_string(dataBytes) +
                 "; tensors are expected without holes or overlaps");
    if (tensor.end - tensor.begin != uint64_t(bytes))
      return bad("tensor '" + tensor.name + "' has " + std::to_string(tensor.end - tensor.begin) +
                 " bytes, its shape needs " + std::to_string(bytes));
    covered = tensor.end;
    out.tensors_[tensor.name] = {*type, tensor.shape, data + tensor.begin, size_t(bytes)};
  }
  if (covered != dataBytes)
    return bad(std::to_string(dataBytes - covered) +
               " bytes behind the last tensor belong to none");
  out.file_ = std::move(file);
  return out;
}

std::map<std::string, std::string> zorse::runtime::onnxNames() { return {{"names", "onnx"}}; }

struct SafetensorsHeader::Json {
  nlohmann::ordered_json object = nlohmann::ordered_json::object();
};

SafetensorsHeader::SafetensorsHeader(const std::map<std::string, std::string> &metadata)
    : json_(std::make_unique<Json>()) {
  if (!metadata.empty())
    json_->object["__metadata__"] = metadata;
}

SafetensorsHeader::~SafetensorsHeader() = default;

void SafetensorsHeader::add(const std::string &name, StoredType type,
                            const std::vector<int64_t> &shape) {
  const uint64_t bytes = uint64_t(elementCount(shape).value_or(0)) * bytesOf(type);
  auto &entries = static_cast<nlohmann::ordered_json::object_t::Container &>(
      json_->object.get_ref<nlohmann::ordered_json::object_t &>());
  entries.emplace_back(name, nlohmann::ordered_json{{"dtype", safetensorsName(type)},
                                                    {"shape", shape},
                                                    {"data_offsets", {end_, end_ + bytes}}});
  end_ += bytes;
}

std::string SafetensorsHeader::text(uint64_t alignment, uint64_t behind) const {
  std::string text = json_->object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  const uint64_t before = 8 + behind;
  text.resize((before + text.size() + alignment - 1) / alignment * alignment - before, ' ');
  std::string length(8, '\0');
  for (int i = 0; i < 8; ++i)
    length[size_t(i)] = char(uint64_t(text.size()) >> (8 * i));
  return length + text;
}

Status zorse::runtime::writeSafetensors(const std::string &path, std::vector<SafetensorsItem> items,
                                        const Status *problem,
                                        const std::map<std::string, std::string> &metadata) {
  std::sort(items.begin(), items.end(),
            [](const SafetensorsItem &a, const SafetensorsItem &b) { return a.name < b.name; });
  SafetensorsHeader header(metadata);
  std::vector<uint64_t> sizes;
  for (const SafetensorsItem &item : items) {
    const uint64_t before = header.bytes();
    header.add(item.name, item.type, item.shape);
    sizes.push_back(header.bytes() - before);
  }
  const uint64_t largest = sizes.empty() ? 0 : *std::max_element(sizes.begin(), sizes.end());
  const std::string text = header.text(8);
  std::vector<std::byte> buffer(largest);
  Status status = writeOutput(path, [&](FILE *file) {
    bool good = std::fwrite(text.data(), 1, text.size(), file) == text.size();
    for (size_t i = 0; i < items.size() && good; ++i) {
      items[i].produce(buffer.data());
      if (problem && problem->failed())
        return false;
      good = sizes[i] == 0 || std::fwrite(buffer.data(), 1, sizes[i], file) == sizes[i];
    }
    return good;
  });
  return problem && problem->failed() ? *problem : status;
}
