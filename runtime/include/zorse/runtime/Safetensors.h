// The safetensors format: eight bytes of length, a JSON header, the tensors without holes.
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

/// A file read strictly: everything its header says is checked against the file, so that `tensors` can be used without further checks.
class SafetensorsFile {
public:
  static Result<SafetensorsFile> open(const std::string &path);
  static Result<SafetensorsFile> parse(MappedFile file);

  const std::map<std::string, SafetensorsEntry> &tensors() const { return tensors_; }
  const std::string &path() const { return file_.path(); }

  /// What the tensors are called by, as far as the file says. Onnx: written by this program, under the names and in the layouts of an ONNX file.
  enum class Names : uint8_t { NotSaid, Onnx };
  Names names() const { return names_; }

private:
  MappedFile file_;
  std::map<std::string, SafetensorsEntry> tensors_;
  Names names_ = Names::NotSaid;
};

/// The header of a safetensors file: of tensors whose data follow each other in the order of `add`. Names must differ. They are not compared, so that
/// a header takes time linear in its tensors.
class SafetensorsHeader {
public:
  explicit SafetensorsHeader(const std::map<std::string, std::string> &metadata = {});
  ~SafetensorsHeader();
  void add(const std::string &name, StoredType type, const std::vector<int64_t> &shape);
  /// Bytes of all data so far.
  uint64_t bytes() const { return end_; }
  /// The length and the JSON text, padded with spaces, as the format allows: the byte `behind` the start of the data lies on a multiple of
  /// `alignment`.
  std::string text(uint64_t alignment, uint64_t behind = 0) const;

private:
  struct Json;
  std::unique_ptr<Json> json_;
  uint64_t end_ = 0;
};

/// One tensor to write; `produce` fills its bytes when its turn comes, so that a large model is never in memory twice.
struct SafetensorsItem {
  std::string name;
  StoredType type = StoredType::F32;
  std::vector<int64_t> shape;
  std::function<void(std::byte *)> produce;
};

/// Writes the items in ascending order of names, beside `path` first and then renamed: a crash leaves the old file or none.
/// \param problem  set by a `produce` that fails: then nothing is written, and this is the result.
/// \param metadata  the header's "__metadata__"; empty: none. onnxNames() marks what SafetensorsFile::Names calls Onnx.
Status writeSafetensors(const std::string &path, std::vector<SafetensorsItem> items, const Status *problem = nullptr,
                        const std::map<std::string, std::string> &metadata = {});

std::map<std::string, std::string> onnxNames();

} // namespace zorse::runtime
