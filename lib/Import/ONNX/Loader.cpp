#include "Loader.h"

#include "zorse/Support/RegularFile.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <limits>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace zorse;
using namespace zorse::onnx_import;

const char *zorse::onnx_import::name(ElementKind kind) {
  switch (kind) {
  case ElementKind::F32:
    return "float32";
  case ElementKind::F64:
    return "float64";
  case ElementKind::F16:
    return "float16";
  case ElementKind::BF16:
    return "bfloat16";
  case ElementKind::I64:
    return "int64";
  case ElementKind::I32:
    return "int32";
  case ElementKind::I16:
    return "int16";
  case ElementKind::I8:
    return "int8";
  case ElementKind::U64:
    return "uint64";
  case ElementKind::U32:
    return "uint32";
  case ElementKind::U16:
    return "uint16";
  case ElementKind::U8:
    return "uint8";
  case ElementKind::Bool:
    return "bool";
  case ElementKind::String:
    return "string";
  default:
    return "an unknown element type";
  }
}

int64_t zorse::onnx_import::byteSize(ElementKind kind) {
  switch (kind) {
  case ElementKind::F64:
  case ElementKind::I64:
  case ElementKind::U64:
    return 8;
  case ElementKind::F32:
  case ElementKind::I32:
  case ElementKind::U32:
    return 4;
  case ElementKind::F16:
  case ElementKind::BF16:
  case ElementKind::I16:
  case ElementKind::U16:
    return 2;
  case ElementKind::I8:
  case ElementKind::U8:
  case ElementKind::Bool:
    return 1;
  default:
    return 0;
  }
}

// kNewest is the newest version with operators that are all known (Operators.h). A later version
// may give an operator a new attribute or another meaning.
std::string zorse::onnx_import::opsetProblem(int64_t version) {
  constexpr int64_t kOldest = 13, kNewest = 26;
  if (version >= kOldest && version <= kNewest)
    return {};
  return "expects operator set version " + std::to_string(kOldest) + " to " +
         std::to_string(kNewest) + ", found " +
         (version ? std::to_string(version) : std::string("none")) +
         "; export with opset_version=18 or convert with onnx.version_converter";
}

Result<std::shared_ptr<MappedFile>> MappedFile::open(const std::string &path) {
  struct stat info{};
  Result<int> descriptor = openRegularFile(path, info);
  if (descriptor.failed())
    return descriptor.error();
  return map(*descriptor, static_cast<uint64_t>(info.st_size), path);
}

Result<std::shared_ptr<MappedFile>> MappedFile::map(int descriptor, uint64_t length,
                                                    const std::string &path) {
  auto file = std::make_shared<MappedFile>();
  file->length = length;
  if (file->length != 0) {
    void *address = mmap(nullptr, file->length, PROT_READ, MAP_PRIVATE, descriptor, 0);
    if (address == MAP_FAILED) {
      const int cause = errno;
      ::close(descriptor);
      return userError(path + ": cannot be read: " + std::strerror(cause));
    }
    file->bytes = static_cast<const uint8_t *>(address);
    file->mapped = true;
  }
  ::close(descriptor);
  return file;
}

std::shared_ptr<MappedFile> MappedFile::view(const void *bytes, uint64_t length) {
  auto file = std::make_shared<MappedFile>();
  file->bytes = static_cast<const uint8_t *>(bytes);
  file->length = length;
  return file;
}

MappedFile::~MappedFile() {
  if (mapped)
    munmap(const_cast<uint8_t *>(bytes), length);
}

/// How to export a model of PyTorch or of the Hugging Face hub that was given instead of an ONNX
/// file; empty if `path` is neither.
static std::string exportHint(const std::string &path) {
  const char *command = "zorse-torch-export --hf ";
  if (access((path + "/config.json").c_str(), F_OK) == 0)
    return "'" + path +
           "' is a model of the Hugging Face hub, expected an ONNX file; write one: " + command +
           path + " -o model.onnx";
  const std::string end = path.substr(std::min(path.find_last_of("./"), path.size()));
  if (end == ".safetensors" || end == ".pt" || end == ".pth" || end == ".ckpt")
    return "'" + path +
           "' holds weights of PyTorch, expected an ONNX file, which has the graph, too; write "
           "one: " +
           command +
           "DIRECTORY -o model.onnx for a model of the Hugging Face hub, zorse.export(module, "
           "\"model.onnx\") in Python for a module";
  return {};
}

Result<std::unique_ptr<LoadedModel>> LoadedModel::load(const std::string &path) {
  Result<std::shared_ptr<MappedFile>> file = MappedFile::open(path);
  Result<std::unique_ptr<LoadedModel>> result = file.failed() ? file.error()
                                                              : load(std::move(*file), path);
  if (std::string remedy = result.failed() ? exportHint(path) : std::string(); !remedy.empty())
    return userError(remedy);
  return result;
}

Result<std::unique_ptr<LoadedModel>> LoadedModel::load(std::shared_ptr<MappedFile> file,
                                                       const std::string &path) {
  auto result = std::make_unique<LoadedModel>();
  result->modelPath = path;
  result->modelFile = std::move(file);
  uint64_t size = result->modelFile->size();
  if (size == 0 || size > std::numeric_limits<int32_t>::max())
    return userError(path + ": expects an ONNX file of 1 byte to 2 GiB, found " +
                     std::to_string(size) + " bytes" + (size ? "; export with external data" : ""));
  google::protobuf::io::ArrayInputStream array(result->modelFile->data(), static_cast<int>(size));
  google::protobuf::io::CodedInputStream stream(&array);
  stream.SetRecursionLimit(64);
  if (!result->proto.ParseFromCodedStream(&stream) || !stream.ConsumedEntireMessage())
    return userError(path +
                     ": not a readable ONNX file: the protobuf data is truncated or corrupted (" +
                     std::to_string(size) + " bytes); export it again or copy it again");
  const onnx::Model &model = result->proto;
  if (!model.has_ir_version() || !model.has_graph())
    return userError(path + ": not an ONNX model: expects an IR version and a graph");
  if (model.ir_version() < 7 || model.ir_version() > 13)
    return userError(path + ": expects ONNX IR version 7 to 13, found " +
                     std::to_string(model.ir_version()) +
                     "; export with a PyTorch or onnx of these versions");
  if (std::string part = notRead(model); !part.empty())
    return userError(path + ": " + part);
  for (const onnx::OperatorSet &set : model.opset_import())
    if (set.domain().empty() || set.domain() == "ai.onnx") {
      if (result->opsetVersion != 0 && result->opsetVersion != set.version())
        return userError(path + ": says both version " + std::to_string(result->opsetVersion) +
                         " and " + std::to_string(set.version()) +
                         " of the default operator set; expects one");
      result->opsetVersion = set.version();
    }
  if (std::string problem = opsetProblem(result->opsetVersion); !problem.empty())
    return userError(path + ": " + problem);
  result->locateRawData();
  return result;
}

namespace {

/// Reads the protobuf wire format field by field, never past `end`.
struct WireReader {
  const uint8_t *position, *end;

  bool varint(uint64_t &value) {
    value = 0;
    for (int shift = 0; shift < 64 && position < end; shift += 7) {
      uint8_t byte = *position++;
      value |= uint64_t(byte & 0x7f) << shift;
      if (!(byte & 0x80))
        return true;
    }
    return false;
  }

  /// Reads one field. Sets `body` for length-delimited fields.
  bool next(uint32_t &field, uint32_t &wire, WireReader &body) {
    uint64_t key = 0, value = 0;
    if (position >= end || !varint(key))
      return false;
    field = static_cast<uint32_t>(key >> 3);
    wire = key & 7;
    switch (wire) {
    case 0:
      return varint(value);
    case 1:
      value = 8;
      break;
    case 5:
      value = 4;
      break;
    case 2:
      if (!varint(value))
        return false;
      break;
    default:
      return false;
    }
    if (value > static_cast<uint64_t>(end - position))
      return false;
    body = {position, position + value};
    position += value;
    return true;
  }
};

} // namespace

// The parser copies raw_data. A bundle refers to weights by their location, so find where their
// bytes are in the file.
void LoadedModel::locateRawData() {
  const uint8_t *begin = modelFile->data();
  WireReader top{begin, begin + modelFile->size()}, graph{}, tensor{}, field{};
  uint32_t number = 0, wire = 0;
  int index = 0;
  while (top.next(number, wire, graph)) {
    if (number != 7 || wire != 2)
      continue;
    while (graph.next(number, wire, tensor)) {
      if (number != 5 || wire != 2)
        continue;
      if (index >= proto.graph().initializer_size())
        return;
      const onnx::Tensor *owner = &proto.graph().initializer(index++);
      while (tensor.next(number, wire, field))
        if (number == 9 && wire == 2)
          rawOffsets.emplace_back(owner, static_cast<uint64_t>(field.position - begin));
    }
  }
  std::sort(rawOffsets.begin(), rawOffsets.end());
}

Result<std::shared_ptr<MappedFile>> LoadedModel::externalFile(const std::string &location) {
  for (auto &[name, file] : externalFiles)
    if (name == location)
      return file;
  bool escapes = location.empty() || location.front() == '/' ||
                 location.find('\\') != std::string::npos ||
                 location.find('\0') != std::string::npos;
  for (size_t begin = 0; begin <= location.size() && !escapes;) {
    size_t end = std::min(location.find('/', begin), location.size());
    escapes = location.substr(begin, end - begin) == "..";
    begin = end + 1;
  }
  if (escapes)
    return userError("external data '" + location +
                     "' must be a relative path below the model's directory, without '..'");
  struct stat info{};
  Result<int> descriptor = openRegularFile(pathOf(location), info);
  if (descriptor.failed())
    return userError("external data: " + descriptor.message() +
                     "; keep the data file in the directory of the model");
  if (Status status = checkBesideModel(*descriptor, location); status.failed()) {
    ::close(*descriptor);
    return status;
  }
  auto file = MappedFile::map(*descriptor, static_cast<uint64_t>(info.st_size), pathOf(location));
  if (!file.failed())
    externalFiles.emplace_back(location, *file);
  return file;
}

// Checks that the open file is in the folder of the model. Checks the descriptor, because the name
// may refer to another file later. Caches of the Hugging Face hub store the model and its data as
// links into one folder.
Status LoadedModel::checkBesideModel(int descriptor, const std::string &location) const {
  namespace fs = std::filesystem;
  std::error_code failed;
  fs::path found = fs::read_symlink("/proc/self/fd/" + std::to_string(descriptor), failed);
  if (failed) // no /proc
    found = fs::canonical(pathOf(location), failed);
  for (const fs::path &directory : {fs::canonical(fs::absolute(modelPath).parent_path(), failed),
                                    fs::canonical(modelPath, failed).parent_path()})
    if (!directory.empty() &&
        std::mismatch(directory.begin(), directory.end(), found.begin(), found.end()).first ==
            directory.end())
      return Status::success();
  return userError("external data '" + location + "' is a symbolic link to " + found.string() +
                   ", outside the model's folder: a model reads no other files; copy the data to "
                   "the directory of the model");
}

std::string LoadedModel::pathOf(const std::string &location) const {
  size_t slash = modelPath.rfind('/');
  return (slash == std::string::npos ? std::string() : modelPath.substr(0, slash + 1)) + location;
}

bool LoadedModel::fileExists(const std::string &location) const {
  return access(pathOf(location).c_str(), F_OK) == 0;
}

static std::optional<uint64_t> parseNumber(const std::string &text) {
  if (text.empty() || text.size() > 19 || text.find_first_not_of("0123456789") != std::string::npos)
    return std::nullopt;
  return std::stoull(text);
}

template <typename T, typename Field>
static std::shared_ptr<std::vector<uint8_t>> encode(const Field &values) {
  auto out = std::make_shared<std::vector<uint8_t>>(values.size() * sizeof(T));
  size_t at = 0;
  for (auto value : values) {
    T element = static_cast<T>(value);
    std::memcpy(out->data() + at, &element, sizeof(T));
    at += sizeof(T);
  }
  return out;
}

/// Number of bytes of a tensor with this shape and type.
static Result<uint64_t> expectedBytes(const onnx::Tensor &tensor, const std::string &where) {
  auto kind = static_cast<ElementKind>(tensor.data_type());
  int64_t width = byteSize(kind);
  if (width == 0)
    return userError(
        where + ": elements of type " +
        (kind == ElementKind::String ? "string" : "number " + std::to_string(tensor.data_type())) +
        " are not supported");
  uint64_t expected = width;
  for (int64_t dim : tensor.dims()) {
    if (dim < 0 || (dim > 0 && expected > (uint64_t(1) << 46) / static_cast<uint64_t>(dim)))
      return userError(where + ": dimension " + std::to_string(dim) + " is negative or too large");
    expected *= static_cast<uint64_t>(dim);
  }
  return expected;
}

/// First part of errors about the size of a tensor.
static std::string expects(const std::string &where, uint64_t bytes, const onnx::Tensor &tensor) {
  return where + ": expects " + std::to_string(bytes) + " bytes for its shape and type " +
         name(static_cast<ElementKind>(tensor.data_type()));
}

Result<TensorBytes> LoadedModel::externalBytes(const onnx::Tensor &tensor, uint64_t expected,
                                               const std::string &where, bool mayLackFile) {
  TensorBytes result;
  std::string location;
  std::optional<uint64_t> offset = 0, length;
  for (const onnx::StringPair &entry : tensor.external_data()) {
    if (entry.key() == "location")
      location = entry.value();
    else if (entry.key() == "offset")
      offset = parseNumber(entry.value());
    else if (entry.key() == "length")
      length = parseNumber(entry.value());
  }
  Result<std::shared_ptr<MappedFile>> found = externalFile(location);
  if (found.failed() && mayLackFile && offset && !fileExists(location)) {
    result.missing = true;
    result.file = pathOf(location);
    result.offset = *offset;
    result.size = length.value_or(expected);
    if (result.size == expected)
      return result;
    return userError(expects(where, expected, tensor) + ", its entry for external data says " +
                     std::to_string(result.size));
  }
  if (found.failed())
    return userError(where + ": " + found.message());
  const MappedFile &file = **found;
  uint64_t size = length.value_or(expected);
  if (!offset || *offset > file.size() || size > file.size() - *offset)
    return userError(where + ": external data '" + location + "' holds " +
                     std::to_string(file.size()) + " bytes, expects " + std::to_string(size) +
                     " at offset " +
                     (offset ? std::to_string(*offset) : std::string("(not a number)")) +
                     "; the data file is truncated or belongs to another model");
  result.file = pathOf(location);
  result.offset = *offset;
  result.data = file.data() + *offset;
  result.size = size;
  return result;
}

TensorBytes LoadedModel::rawBytes(const onnx::Tensor &tensor) const {
  TensorBytes result;
  result.data = reinterpret_cast<const uint8_t *>(tensor.raw_data().data());
  result.size = tensor.raw_data().size();
  auto found =
      std::lower_bound(rawOffsets.begin(), rawOffsets.end(), std::make_pair(&tensor, uint64_t(0)));
  if (found != rawOffsets.end() && found->first == &tensor &&
      found->second + result.size <= modelFile->size() &&
      (result.size == 0 || std::memcmp(modelFile->data() + found->second, result.data,
                                       std::min<size_t>(result.size, 64)) == 0)) {
    result.file = modelPath;
    result.offset = found->second;
  }
  return result;
}

/// Bytes of a tensor that stores its elements in typed fields.
static TensorBytes fieldBytes(const onnx::Tensor &tensor) {
  TensorBytes result;
  switch (static_cast<ElementKind>(tensor.data_type())) {
  case ElementKind::F32:
    result.owned = encode<float>(tensor.float_data());
    break;
  case ElementKind::F64:
    result.owned = encode<double>(tensor.double_data());
    break;
  case ElementKind::I64:
    result.owned = encode<int64_t>(tensor.int64_data());
    break;
  case ElementKind::U64:
    result.owned = encode<uint64_t>(tensor.uint64_data());
    break;
  case ElementKind::U32:
    result.owned = encode<uint32_t>(tensor.uint64_data());
    break;
  case ElementKind::I32:
    result.owned = encode<int32_t>(tensor.int32_data());
    break;
  case ElementKind::I16:
  case ElementKind::U16:
  case ElementKind::F16:
  case ElementKind::BF16:
    result.owned = encode<uint16_t>(tensor.int32_data());
    break;
  default:
    result.owned = encode<uint8_t>(tensor.int32_data());
    break;
  }
  result.data = result.owned->data();
  result.size = result.owned->size();
  return result;
}

Result<TensorBytes> LoadedModel::bytes(const onnx::Tensor &tensor, bool mayLackFile) {
  const std::string where = "tensor '" + tensor.name() + "'";
  Result<uint64_t> expected = expectedBytes(tensor, where);
  if (expected.failed())
    return expected.error();
  Result<TensorBytes> result =
      tensor.data_location() == 1 ? externalBytes(tensor, *expected, where, mayLackFile)
                                  : (tensor.has_raw_data() ? rawBytes(tensor) : fieldBytes(tensor));
  if (!result.failed() && result->size != *expected)
    return userError(expects(where, *expected, tensor) + ", found " + std::to_string(result->size));
  return result;
}
