// A checkpoint as other tools keep it: one safetensors file, or a directory of the Hugging Face hub with one or several and an index.
#pragma once

#include "zorse/runtime/Safetensors.h"

#include <map>
#include <string>
#include <vector>

namespace zorse::runtime {

/// A tensor and the file that it is in.
struct FiledTensor {
  SafetensorsEntry entry;
  size_t file = 0; ///< in TensorFiles::files()
};

class TensorFiles {
public:
  /// \param path  a safetensors file, an index (*.safetensors.index.json) whose shards lie beside it, or a directory with model.safetensors or
  ///   model.safetensors.index.json. Every tensor of the index must be in the shard that it names, and in no other.
  static Result<TensorFiles> open(const std::string &path);

  /// By name, over all files.
  const std::map<std::string, FiledTensor> &tensors() const { return tensors_; }
  /// Names of the files, without folder.
  const std::vector<std::string> &files() const { return files_; }
  /// Name of the index; empty: one file without an index.
  const std::string &index() const { return index_; }
  /// Where the files lie.
  const std::string &folder() const { return folder_; }
  /// As it was given, for messages.
  const std::string &path() const { return path_; }
  /// Written by this program, under ONNX names and in ONNX layouts.
  bool isOurs() const { return ours_; }

private:
  Status addFile(const std::string &name);
  Status readIndex();

  std::string path_, folder_, index_;
  std::vector<std::string> files_;
  std::vector<SafetensorsFile> opened_; ///< keep the tensors mapped
  std::map<std::string, FiledTensor> tensors_;
  bool ours_ = false;
};

/// The files of weights that a directory of the hub may have, without an index or with one.
inline constexpr const char *kModelFile = "model.safetensors", *kModelIndex = "model.safetensors.index.json";
/// Ends the name of an index.
inline constexpr const char *kIndexEnding = ".safetensors.index.json";

} // namespace zorse::runtime
