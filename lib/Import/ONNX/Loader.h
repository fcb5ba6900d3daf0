// Reads an ONNX file and the tensors it refers to. Both are checked, because they may have
// arbitrary contents.
#pragma once

#include "zorse/Base/Status.h"

#include "onnx_wire.pb.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace zorse::onnx_import {

/// Supported element types, with the numbers of TensorProto.DataType.
enum class ElementKind : int32_t {
  Undefined = 0,
  F32 = 1,
  U8 = 2,
  I8 = 3,
  U16 = 4,
  I16 = 5,
  I32 = 6,
  I64 = 7,
  String = 8,
  Bool = 9,
  F16 = 10,
  F64 = 11,
  U32 = 12,
  U64 = 13,
  BF16 = 16,
};

inline bool isFloat(ElementKind kind) {
  return kind == ElementKind::F32 || kind == ElementKind::F64 || kind == ElementKind::F16 ||
         kind == ElementKind::BF16;
}
inline bool isNarrow(ElementKind kind) {
  return kind == ElementKind::F16 || kind == ElementKind::BF16;
} ///< a 16-bit float
const char *name(ElementKind kind);
/// Stored bytes per element, 0 for types without a fixed size.
int64_t byteSize(ElementKind kind);

/// Why a version of the default operator set is not supported; empty if it is.
std::string opsetProblem(int64_t version);

/// A message about a part of the file that the importer does not read and that may matter; empty if
/// there is none.
std::string notRead(const onnx::Model &model);

/// A read-only memory map. Bytes are paged in when they are read: opening a model of 100 GB costs
/// nothing.
class MappedFile {
public:
  static Result<std::shared_ptr<MappedFile>> open(const std::string &path);
  /// Maps an open regular file and closes the descriptor. `path` is for messages.
  static Result<std::shared_ptr<MappedFile>> map(int descriptor, uint64_t length,
                                                 const std::string &path);
  /// Refers to bytes that the caller keeps alive.
  static std::shared_ptr<MappedFile> view(const void *bytes, uint64_t length);
  ~MappedFile();
  const uint8_t *data() const { return bytes; }
  uint64_t size() const { return length; }

private:
  const uint8_t *bytes = nullptr;
  uint64_t length = 0;
  bool mapped = false; ///< mapped by map(): the destructor unmaps the bytes
};

/// Location of the bytes of one tensor. `data` stays valid while the model lives.
struct TensorBytes {
  const uint8_t *data = nullptr; ///< little-endian elements, row-major; null if `owned` holds them
  uint64_t size = 0;
  std::string file;    ///< path of the file that contains the bytes unchanged, empty if none does
                       ///< (typed fields)
  uint64_t offset = 0; ///< in `file`
  std::shared_ptr<std::vector<uint8_t>> owned; ///< re-encoded from typed fields
  bool missing = false; ///< its file does not exist, and the caller of LoadedModel::bytes allowed
                        ///< that: no data
};

/// A parsed model and the files it maps.
class LoadedModel {
public:
  /// Reads and checks `path`: it must parse and have IR version 7 to 13 and opset 13 to 26.
  static Result<std::unique_ptr<LoadedModel>> load(const std::string &path);
  /// The same for an open file. `path` is for messages and locates external data.
  static Result<std::unique_ptr<LoadedModel>> load(std::shared_ptr<MappedFile> file,
                                                   const std::string &path);

  const onnx::Model &model() const { return proto; }
  /// For writing the model with other values. `bytes` of a changed tensor returns the new ones.
  onnx::Model &mutableModel() { return proto; }
  const std::string &path() const { return modelPath; }
  /// Version of the default operator set.
  int64_t opset() const { return opsetVersion; }
  /// The bytes of `tensor`. Checks that their number matches its shape and type. With
  /// `mayLackFile`, a missing file of external data is not an error.
  Result<TensorBytes> bytes(const onnx::Tensor &tensor, bool mayLackFile = false);

private:
  Result<std::shared_ptr<MappedFile>> externalFile(const std::string &location);
  std::string pathOf(const std::string &location) const;
  Status checkBesideModel(int descriptor, const std::string &location) const;
  bool fileExists(const std::string &location) const;
  void locateRawData();
  Result<TensorBytes> externalBytes(const onnx::Tensor &tensor, uint64_t expected,
                                    const std::string &where, bool mayLackFile);
  TensorBytes rawBytes(const onnx::Tensor &tensor) const;

  onnx::Model proto;
  std::string modelPath;
  int64_t opsetVersion = 0;
  std::shared_ptr<MappedFile> modelFile;
  std::vector<std::pair<std::string, std::shared_ptr<MappedFile>>> externalFiles;
  /// Offsets of initializers in the model file, sorted by pointer.
  std::vector<std::pair<const onnx::Tensor *, uint64_t>> rawOffsets;
};

} // namespace zorse::onnx_import
