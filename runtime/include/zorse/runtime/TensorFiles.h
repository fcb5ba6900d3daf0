// Exported weights in the layouts of other tools: one safetensors file, or a directory of the
// Hugging Face Hub with one file, or several files and an index.
#pragma once

#include "zorse/runtime/Safetensors.h"

#include <map>
#include <string>
#include <vector>

namespace zorse::runtime {

/// A tensor and its file.
struct FiledTensor {
  SafetensorsEntry entry;
  size_t file = 0; ///< index in TensorFiles::files()
};

class TensorFiles {
public:
  /// \param path  a safetensors file, an index (*.safetensors.index.json) with its shards in the
  ///   same directory, or a directory with model.safetensors or model.safetensors.index.json. Every
  ///   tensor of the index must be in the shard that the index names, and in no other.
  static Result<TensorFiles> open(const std::string &path);

  /// Tensors of all files, by name.
  const std::map<std::string, FiledTensor> &tensors() const { return tensors_; }
  /// File names without directory.
  const std::vector<std::string> &files() const { return files_; }
  /// Name of the index; empty: one file without an index.
  const std::string &index() const { return index_; }
  /// Directory of the files.
  const std::string &directory() const { return directory_; }
  /// The path as given to `open`, for messages.
  const std::string &path() const { return path_; }
  /// Whether this program wrote the files, with ONNX names and in ONNX layouts.
  bool isOurs() const { return ours_; }

private:
  Status addFile(const std::string &name);
  Status readIndex();

  std::string path_, directory_, index_;
  std::vector<std::string> files_;
  std::vector<SafetensorsFile> opened_; ///< own the memory maps that `tensors_` points into
  std::map<std::string, FiledTensor> tensors_;
  bool ours_ = false;
};

/// Names of the weight file and of the index in a directory of the Hub.
inline constexpr const char *kModelFile = "model.safetensors",
                            *kModelIndex = "model.safetensors.index.json";
/// Suffix of the name of an index.
inline constexpr const char *kIndexEnding = ".safetensors.index.json";

} // namespace zorse::runtime
