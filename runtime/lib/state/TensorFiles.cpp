#include "zorse/runtime/TensorFiles.h"
#include "zorse/Support/ShallowJson.h"

#include <nlohmann/json.hpp>

#include <filesystem>
#include <set>

using namespace zorse::runtime;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

bool endsWith(const std::string &text, const std::string &end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

/// Finds the file of a directory that contains the weights or their index.
Result<std::string> weightsOf(const std::string &directory) {
  std::error_code ignored;
  auto has = [&](const char *name) { return fs::exists(fs::path(directory) / name, ignored); };
  if (has(kModelFile) && has(kModelIndex))
    return userError(directory + ": holds both " + kModelFile + " and " + kModelIndex +
                     "; name the one that is meant");
  for (const char *name : {kModelFile, kModelIndex})
    if (has(name))
      return std::string(name);
  std::string text = directory + ": expects " + kModelFile + " or " + kModelIndex;
  if (has("adapter_model.safetensors"))
    return userError(text + ", and holds an adapter; give the directory of its base model");
  for (const char *name : {"pytorch_model.bin", "pytorch_model.bin.index.json"})
    if (has(name))
      return userError(
          text + ", and holds " + name +
          "; convert it once in Python: AutoModelForCausalLM.from_pretrained(directory)" +
          ".save_pretrained(another)");
  return userError(
      text +
      ", and holds neither; give a directory of the Hugging Face hub, or a safetensors file");
}

} // namespace

Result<TensorFiles> TensorFiles::open(const std::string &path) {
  TensorFiles out;
  out.path_ = path;
  std::error_code ignored;
  std::string name;
  if (fs::is_directory(path, ignored)) {
    out.directory_ = path;
    Result<std::string> found = weightsOf(path);
    if (found.failed())
      return found.error();
    name = *found;
  } else {
    fs::path parent = fs::path(path).parent_path();
    out.directory_ = parent.empty() ? "." : parent.string();
    name = fs::path(path).filename().string();
  }
  if (!endsWith(name, kIndexEnding)) {
    if (Status status = out.addFile(name); status.failed())
      return status;
    return out;
  }
  out.index_ = name;
  if (Status status = out.readIndex(); status.failed())
    return status;
  return out;
}

Status TensorFiles::addFile(const std::string &name) {
  Result<SafetensorsFile> opened = SafetensorsFile::open((fs::path(directory_) / name).string());
  if (opened.failed())
    return opened.error();
  auto twice = [&](const std::string &tensor, const std::string &other) {
    return userError(path_ + ": tensor '" + tensor + "' is in " + other + " and in " + name +
                     "; every tensor is expected once");
  };
  ours_ |= opened->names() == SafetensorsFile::Names::Onnx;
  for (const auto &[tensor, entry] : opened->tensors())
    if (auto [known, isNew] = tensors_.emplace(tensor, FiledTensor{entry, files_.size()}); !isNew)
      return twice(tensor, files_[known->second.file]);
  files_.push_back(name);
  opened_.push_back(std::move(*opened));
  return Status::success();
}

Status TensorFiles::readIndex() {
  std::string path = (fs::path(directory_) / index_).string();
  Result<MappedFile> file = MappedFile::open(path);
  if (file.failed())
    return file.error();
  auto bad = [&](const std::string &what) {
    return userError(path + ": is no index of safetensors files: " + what);
  };
  auto badName = [&](const std::string &tensor, const std::string &name) {
    return bad("tensor '" + tensor + "' is listed in '" + name +
               "', expects the name of a file in the directory of the index");
  };
  const std::string again =
      ". Index and files are of different checkpoints: fetch the whole directory again";
  auto notThere = [&](const std::string &name) {
    return userError(path + ": names " + name +
                     ", which is not in its directory; fetch the whole directory again");
  };
  auto notIn = [&](const std::string &tensor, const std::string &shard, const std::string &other) {
    return userError(path + ": says that tensor '" + tensor + "' is in " + shard +
                     ", which does not hold it" + (other.empty() ? "" : "; " + other + " does") +
                     again);
  };
  auto notListed = [&](const std::string &tensor, const std::string &shard) {
    return userError(path + ": does not list tensor '" + tensor + "', which " + shard + " holds" +
                     again);
  };
  const char *text = reinterpret_cast<const char *>(file->data());
  json root = zorse::parseShallow<json>(text, file->size(), 9);
  if (!root.is_object() || !root.contains("weight_map") || !root["weight_map"].is_object())
    return bad("expects a JSON object with the object 'weight_map'");
  std::set<std::string> names;
  for (const auto &[tensor, shard] : root["weight_map"].items()) {
    if (!shard.is_string())
      return bad("tensor '" + tensor + "' is in no named file");
    const std::string &name = shard.get_ref<const std::string &>();
    if (name.empty() || name[0] == '.' || name.find('/') != std::string::npos ||
        name.find('\0') != std::string::npos)
      return badName(tensor, name);
    names.insert(name);
  }
  std::error_code ignored;
  for (const std::string &name : names)
    if (!fs::exists(fs::path(directory_) / name, ignored))
      return notThere(name);
  for (const std::string &name : names)
    if (Status status = addFile(name); status.failed())
      return status;
  for (const auto &[tensor, shard] : root["weight_map"].items()) {
    auto found = tensors_.find(tensor);
    if (found == tensors_.end() ||
        files_[found->second.file] != shard.get_ref<const std::string &>())
      return notIn(tensor, shard.get<std::string>(),
                   found == tensors_.end() ? "" : files_[found->second.file]);
  }
  for (const auto &[tensor, filed] : tensors_)
    if (!root["weight_map"].contains(tensor))
      return notListed(tensor, files_[filed.file]);
  return Status::success();
}
