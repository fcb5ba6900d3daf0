// Reading an ONNX file and the tensors it refers to, without trusting either.
#pragma once

#include "zorse/Base/Status.h"

#include "onnx_wire.pb.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace zorse::onnx_import {

/// Element types of the format that may occur (TensorProto.DataType numbers).
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
  return kind == ElementKind::F32 || kind == ElementKind::F64 || kind == ElementKind::F16 || kind == ElementKind::BF16;
}
inline bool isNarrow(ElementKind kind) { return kind == ElementKind::F16 || kind == ElementKind::BF16; } ///< a float of 16 bits
const char *name(ElementKind kind);
/// Bytes per element as stored, 0 for types without a fixed size.
int64_t byteSize(ElementKind kind);

/// What is wrong with a version of the default operator set; empty if nothing.
std::string opsetProblem(int64_t version);

/// A part of the file that nothing here reads and that may matter: what is said of it to the user. Empty if there is none.
std::string notRead(const onnx::Model &model);

/// A read-only memory map. Bytes are paged in when read: opening a model of 100 GB costs nothing.
class MappedFile {
public:
  static Result<std::shared_ptr<MappedFile>> open(const std::string &path);
  /// A regular file that is open, and is closed. `path` is for messages.
  static Result<std::shared_ptr<MappedFile>> map(int descriptor, uint64_t length, const std::string &path);
  /// Bytes that the caller keeps while this lives.
  static std::shared_ptr<MappedFile> view(const void *bytes, uint64_t length);
  ~MappedFile();
  const uint8_t *data() const { return bytes; }
  uint64_t size() const { return length; }

private:
  const uint8_t *bytes = nullptr;
  uint64_t length = 0;
  bool mapped = false; ///< by open: unmapped at the end
};

/// Where the bytes of one tensor are. `data` stays valid while the model lives.
struct TensorBytes {
  const uint8_t *data = nullptr; ///< little-endian elements, row-major; null if `owned` holds them
  uint64_t size = 0;
  std::string file;                            ///< path of the file that holds them as they are, empty if there is none (typed fields)
  uint64_t offset = 0;                         ///< in `file`
  std::shared_ptr<std::vector<uint8_t>> owned; ///< re-encoded from typed fields
  bool missing = false;                        ///< its file does not exist, which the caller of LoadedModel::bytes allowed: no data
};

/// A parsed model and the files it maps.
class LoadedModel {
public:
  /// Reads and checks `path`: parsable, IR version 7 to 13, opset 13 to 26.
  static Result<std::unique_ptr<LoadedModel>> load(const std::string &path);
  /// The same for a file that is open already; `path` is for messages and says where external data lie.
  static Result<std::unique_ptr<LoadedModel>> load(std::shared_ptr<MappedFile> file, const std::string &path);

  const onnx::Model &model() const { return proto; }
  /// For writing it again with other numbers; `bytes` of a tensor that was changed are the new ones.
  onnx::Model &mutableModel() { return proto; }
  const std::string &path() const { return modelPath; }
  /// Version of the default operator set.
  int64_t opset() const { return opsetVersion; }
  /// The bytes of `tensor`; checks that their number agrees with its shape and type. With `mayLackFile`, a file of external data that does not exist
  /// is no error.
  Result<TensorBytes> bytes(const onnx::Tensor &tensor, bool mayLackFile = false);

private:
  Result<std::shared_ptr<MappedFile>> externalFile(const std::string &location);
  std::string pathOf(const std::string &location) const;
  Status checkBesideModel(int descriptor, const std::string &location) const;
  bool fileExists(const std::string &location) const;
  void locateRawData();
  Result<TensorBytes> externalBytes(const onnx::Tensor &tensor, uint64_t expected, const std::string &where, bool mayLackFile);
  TensorBytes rawBytes(const onnx::Tensor &tensor) const;

  onnx::Model proto;
  std::string modelPath;
  int64_t opsetVersion = 0;
  std::shared_ptr<MappedFile> modelFile;
  std::vector<std::pair<std::string, std::shared_ptr<MappedFile>>> externalFiles;
  std::vector<std::pair<const onnx::Tensor *, uint64_t>> rawOffsets; ///< of initializers, sorted by pointer
};

} // namespace zorse::onnx_import
