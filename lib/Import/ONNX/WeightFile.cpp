// Reads flat buffers (https://flatbuffers.dev/internals). A table begins with the signed distance
// back to its vtable. The vtable contains the offsets of the table's fields from its beginning, 16
// bits each, 0 for absent fields. References are unsigned 32-bit forward distances. The tables,
// with the numbers of the fields that are read:
//
//   Checkpoint  { 0 version: int; 1 module_state: ModuleState; ... }
//   ModuleState { 0 requires_grad_params: [Tensor]; 1 frozen_params: [Tensor]; ... }
//   Tensor      { 0 name: string; 2 dims: [int64]; 3 data_type: int32; 4 raw_data: [uint8];
//                 6 external_data_offset: int64 = -1 }
#include "WeightFile.h"

#include "Loader.h"

#include <cstring>

using namespace zorse::onnx_import;

namespace {

/// Reads numbers from the buffer. Out-of-range accesses clear good().
class FlatReader {
public:
  FlatReader(const uint8_t *data, uint64_t size) : data_(data), size_(size) {}
  bool good() const { return good_; }

  template <typename T> T number(uint64_t at) {
    T value{};
    if (at > size_ || sizeof(T) > size_ - at)
      good_ = false;
    else
      std::memcpy(&value, data_ + at, sizeof value);
    return value;
  }

  /// Offset of a field of a table. 0: the field is absent.
  uint64_t field(uint64_t table, unsigned index) {
    const int64_t vtable = int64_t(table) - number<int32_t>(table);
    if (!good_ || vtable < 0)
      return bad();
    const auto bytes = number<uint16_t>(uint64_t(vtable));
    if (4 + 2 * index + 2 > bytes)
      return 0;
    const auto offset = number<uint16_t>(uint64_t(vtable) + 4 + 2 * index);
    return offset == 0 || !good_ ? 0 : table + offset;
  }

  /// The target of the reference at `at`.
  uint64_t follow(uint64_t at) { return at + number<uint32_t>(at); }

  struct Range {
    uint64_t begin = 0, count = 0;
  };
  /// A vector, or a string, with elements of `bytes` bytes.
  Range vector(uint64_t at, uint64_t bytes) {
    const uint64_t begin = follow(at);
    const auto count = number<uint32_t>(begin);
    if (!good_ || count > (size_ - begin - 4) / bytes) {
      bad();
      return {};
    }
    return {begin + 4, count};
  }

  std::string text(uint64_t at) {
    Range range = vector(at, 1);
    return {reinterpret_cast<const char *>(data_) + range.begin, range.count};
  }

private:
  uint64_t bad() {
    good_ = false;
    return 0;
  }
  const uint8_t *data_;
  uint64_t size_;
  bool good_ = true;
};

} // namespace

zorse::Result<WeightFile> zorse::onnx_import::readWeightFile(const uint8_t *data, uint64_t size,
                                                             const std::string &path) {
  auto fail = [&](const std::string &what) { return userError(path + ": " + what); };
  FlatReader reader(data, size);
  if (size < 8 || std::memcmp(data + 4, "ODTC", 4) != 0)
    return fail(
        "expects a checkpoint of onnxruntime's training (identifier ODTC), found something else");
  const uint64_t root = reader.follow(0), state = reader.field(root, 1);
  if (reader.good() && state == 0)
    return fail("holds no parameters");
  const uint64_t module = reader.follow(state);
  WeightFile weights;
  for (unsigned list : {0u, 1u}) {
    const uint64_t at = reader.field(module, list);
    if (at == 0)
      continue;
    const FlatReader::Range tensors = reader.vector(at, 4);
    for (uint64_t i = 0; i < tensors.count && reader.good(); ++i) {
      const uint64_t table = reader.follow(tensors.begin + 4 * i);
      WeightFileTensor tensor;
      if (uint64_t name = reader.field(table, 0))
        tensor.name = reader.text(name);
      if (uint64_t dims = reader.field(table, 2)) {
        const FlatReader::Range range = reader.vector(dims, 8);
        for (uint64_t d = 0; d < range.count && d < 64; ++d)
          tensor.dims.push_back(reader.number<int64_t>(range.begin + 8 * d));
      }
      if (uint64_t type = reader.field(table, 3))
        tensor.type = reader.number<int32_t>(type);
      uint64_t elements = uint64_t(byteSize(static_cast<ElementKind>(tensor.type)));
      for (int64_t dim : tensor.dims)
        if (dim < 0 || __builtin_mul_overflow(elements, uint64_t(dim), &elements))
          return fail("the shape of '" + tensor.name + "' is impossible");
      if (uint64_t raw = reader.field(table, 4)) {
        const FlatReader::Range range = reader.vector(raw, 1);
        tensor.offset = range.begin;
        tensor.bytes = range.count;
      } else if (uint64_t external = reader.field(table, 6)) {
        const auto offset = reader.number<int64_t>(external);
        if (offset < 0)
          return fail("'" + tensor.name + "' has no bytes");
        tensor.inOtherFile = true;
        tensor.offset = uint64_t(offset);
        tensor.bytes = elements;
      }
      if (reader.good() && (tensor.bytes != elements || elements == 0))
        return fail("'" + tensor.name + "' has " + std::to_string(tensor.bytes) +
                    " bytes; its shape and type need " + std::to_string(elements));
      weights.parameters.push_back(std::move(tensor));
    }
  }
  if (!reader.good())
    return fail("is truncated or damaged: a reference leads out of the file");
  return weights;
}

zorse::Result<WeightFile> zorse::onnx_import::readWeightFile(const std::string &path) {
  Result<std::shared_ptr<MappedFile>> file = MappedFile::open(path);
  if (file.failed())
    return file.error();
  return readWeightFile((*file)->data(), (*file)->size(), path);
}
