// The safetensors format: the header length in eight bytes, a JSON header, and the contiguous data
// of the tensors.
#pragma once

#include "zorse/runtime/Elements.h"
#include "zorse/runtime/MappedFile.h"

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace zorse::runtime {

struct SafetensorsEntry {
  StoredType type = StoredType::F32;
  std::vector<int64_t> shape;
  const std::byte *data = nullptr; ///< inside the mapped file
  size_t bytes = 0;
};

/// A strictly validated file. `open` and `parse` check the whole header against the file, so
/// `tensors` needs no further checks.
class SafetensorsFile {
public:
  static Result<SafetensorsFile> open(const std::string &path);
  static Result<SafetensorsFile> parse(MappedFile file);

  const std::map<std::string, SafetensorsEntry> &tensors() const { return tensors_; }
  const std::string &path() const { return file_.path(); }

  /// Which names the tensors have, as far as the metadata specifies it. Onnx: this program wrote
  /// the file, with the names and layouts of an ONNX file.
  enum class Names : uint8_t { NotSaid, Onnx };
  Names names() const { return names_; }

private:
  MappedFile file_;
  std::map<std::string, SafetensorsEntry> tensors_;
  Names names_ = Names::NotSaid;
};

/// Builds the header of a safetensors file. The data of the tensors follow each other in the order
/// of `add`. Names must differ; they are not compared, so building the header takes time linear in
/// the number of tensors.
class SafetensorsHeader {
public:
  explicit SafetensorsHeader(const std::map<std::string, std::string> &metadata = {});
  ~SafetensorsHeader();
  void add(const std::string &name, StoredType type, const std::vector<int64_t> &shape);
  /// Bytes of the data of all tensors added so far.
  uint64_t bytes() const { return end_; }
  /// Returns the header length and the JSON text. The text is padded with spaces, as the format
  /// allows, so that the byte at offset `behind` of the data is at a multiple of `alignment` in the
  /// file.
  std::string text(uint64_t alignment, uint64_t behind = 0) const;

private:
  struct Json;
  std::unique_ptr<Json> json_;
  uint64_t end_ = 0;
};

/// One tensor to write. `produce` fills its bytes only when it is written, so that a large model is
/// never in memory twice.
struct SafetensorsItem {
  std::string name;
  StoredType type = StoredType::F32;
  std::vector<int64_t> shape;
  std::function<void(std::byte *)> produce;
};

/// Writes the items in ascending order of names to a temporary file next to `path`, then renames
/// it. A crash leaves the old file or none.
/// \param problem  status that a failing `produce` sets. The file is then not written, and the
///   status is returned.
/// \param metadata  the header's "__metadata__"; empty: none. onnxNames() marks the file as
///   SafetensorsFile::Names::Onnx.
Status writeSafetensors(const std::string &path, std::vector<SafetensorsItem> items,
                        const Status *problem = nullptr,
                        const std::map<std::string, std::string> &metadata = {});

/// Metadata of a file with ONNX names and layouts.
std::map<std::string, std::string> onnxNames();

} // namespace zorse::runtime
