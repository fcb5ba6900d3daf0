#include "HubExport.h"

#include "HubDirectory.h"

#include "zorse/runtime/MatchTensors.h"

#include <algorithm>
#include <filesystem>

using namespace zorse;
using namespace zorse::exporting;
using namespace zorse::runtime;
using nlohmann::ordered_json;
namespace fs = std::filesystem;

namespace {

/// Metadata that PyTorch writes into safetensors files; transformers requires it.
std::map<std::string, std::string> ofPyTorch() { return {{"format", "pt"}}; }
constexpr size_t kListed = 20; ///< maximum number of names in a message

class HubExport {
public:
  HubExport(const CheckpointReader &checkpoint, const HubExportOptions &options)
      : snapshot_(checkpoint), index_(checkpoint.index()), options_(options),
        matches_(index_.parameters.size()) {}

  Status run(std::string &note) {
    if (Status status = readSource(note); status.failed())
      return status;
    if (Status status = checkFrozen(); status.failed())
      return status;
    return writeDirectory(options_.output, [&](const std::string &directory) {
      return index_.hub.lora ? writeAdapter(directory)
             : source_       ? writeModel(directory)
                             : writeNew(directory);
    });
  }

private:
  /// Reads the tensors that the run started from and finds the parameter of each.
  Status readSource(std::string &note) {
    std::error_code ignored;
    bool weightless = fs::is_directory(options_.hub, ignored) &&
                      fs::exists(fs::path(options_.hub) / "config.json", ignored) &&
                      !fs::exists(fs::path(options_.hub) / kModelFile, ignored) &&
                      !fs::exists(fs::path(options_.hub) / kModelIndex, ignored);
    if (weightless)
      return Status::success();
    Result<TensorFiles> opened = TensorFiles::open(options_.hub);
    if (opened.failed())
      return opened.error();
    source_ = std::move(*opened);
    std::vector<WantedTensor> wanted;
    wanted.reserve(index_.parameters.size());
    for (const CheckpointParameter &parameter : index_.parameters)
      wanted.push_back({parameter.name, parameter.storedShape(), parameter.trainable,
                        isFloat(parameter.type), parameter.hub, parameter.constant});
    Result<TensorMatching> matched =
        matchTensors(*source_, wanted, index_.hub, options_.skip, UnmatchedTensorPolicy::Keep);
    if (matched.failed())
      return matched.error();
    matches_ = std::move(matched->parameters);
    note = matched->note;
    return Status::success();
  }

  Status checkFrozen() const {
    std::vector<std::string> others;
    for (uint32_t p = 0; source_ && p < index_.parameters.size(); ++p) {
      const CheckpointParameter &parameter = index_.parameters[p];
      if (parameter.trainable || matches_[p].names.empty())
        continue;
      const SafetensorsEntry &entry = source_->tensors().at(matches_[p].names.front()).entry;
      std::vector<std::byte> turned(matches_[p].transposed ? entry.bytes : 0);
      if (matches_[p].transposed)
        permuteElements(entry.data, turned.data(), bytesOf(entry.type), entry.shape, {1, 0});
      if (!snapshot_.isFrozen(p, entry.type, matches_[p].transposed ? turned.data() : entry.data))
        others.push_back("'" + matches_[p].names.front() + "'");
    }
    if (others.empty())
      return Status::success();
    return userError(
        options_.hub +
        ": the run started from other weights: these frozen parameters have other values: " +
        list(others) + "; give the directory that --load-weights named");
  }

  static std::string list(const std::vector<std::string> &names) {
    std::string text;
    for (size_t i = 0; i < names.size() && i < kListed; ++i)
      text += (i ? ", " : "") + names[i];
    return text + (names.size() > kListed
                       ? " and " + std::to_string(names.size() - kListed) + " more"
                       : "");
  }

  /// Returns a parameter in the layout of the hub checkpoint. Errors are stored in `problem_`.
  SafetensorsItem itemOf(const std::string &name, uint32_t p, bool transposed, StoredType type) {
    const CheckpointParameter &parameter = index_.parameters[p];
    std::vector<int64_t> stored = parameter.storedShape(), shape = stored;
    if (transposed)
      std::reverse(shape.begin(), shape.end());
    return {name, type, shape, [=](std::byte *target) {
              size_t bytes = size_t(index_.parameters[p].elements()) * bytesOf(type);
              std::vector<std::byte> turned(transposed ? bytes : 0);
              std::byte *read = transposed ? turned.data() : target;
              Status status = readParameter(p, type, read);
              if (status.failed() && problem_.succeeded())
                problem_ = status;
              if (transposed)
                permuteElements(read, target, bytesOf(type), stored, {1, 0});
            }};
  }

  /// Reads a parameter in the layout of the ONNX file.
  Status readParameter(uint32_t p, StoredType type, std::byte *target) const {
    const CheckpointParameter &parameter = index_.parameters[p];
    if (parameter.trainable)
      return snapshot_.readStored(p, type, target);
    std::vector<std::byte> frozen(size_t(parameter.elements()) * bytesOf(parameter.type));
    if (Status status = snapshot_.readFrozen(p, frozen.data()); status.failed())
      return status;
    convertElements(frozen.data(), parameter.type, target, type, parameter.elements());
    return Status::success();
  }

  StoredType typeOf(StoredType source) const {
    return options_.type && isFloat(source) ? *options_.type : source;
  }

  SafetensorsItem copyOf(const std::string &name, const SafetensorsEntry &entry) const {
    StoredType type = typeOf(entry.type);
    return {name, type, entry.shape, [entry, type](std::byte *target) {
              convertElements(entry.data, entry.type, target, type,
                              int64_t(entry.bytes / bytesOf(entry.type)));
            }};
  }

  /// Writes the files of the source with trained values in every tensor.
  Status writeModel(const std::string &directory) {
    std::map<std::string, uint32_t> parameterOf;
    for (uint32_t p = 0; p < matches_.size(); ++p)
      for (const std::string &name : matches_[p].names)
        if (index_.parameters[p].trainable)
          parameterOf[name] = p;
    std::vector<std::vector<SafetensorsItem>> files(source_->files().size());
    uint64_t total = 0;
    for (const auto &[name, tensor] : source_->tensors()) {
      auto found = parameterOf.find(name);
      files[tensor.file].push_back(found == parameterOf.end()
                                       ? copyOf(name, tensor.entry)
                                       : itemOf(name, found->second,
                                                matches_[found->second].transposed,
                                                typeOf(tensor.entry.type)));
      total += tensor.entry.bytes / bytesOf(tensor.entry.type) *
               bytesOf(files[tensor.file].back().type);
    }
    for (size_t f = 0; f < files.size(); ++f)
      if (Status status = writeSafetensors(directory + "/" + source_->files()[f],
                                           std::move(files[f]), &problem_, ofPyTorch());
          status.failed())
        return status;
    if (!source_->index().empty()) {
      Result<ordered_json> index = readJson(source_->directory() + "/" + source_->index());
      if (index.failed())
        return index.error();
      (*index)["metadata"]["total_size"] = total;
      if (Status status = writeJson(directory + "/" + source_->index(), *index); status.failed())
        return status;
    }
    return copyCompanions(source_->directory(), directory, options_.type);
  }

  /// Writes one file with the tensor names of the exporter's facts. Used if the run did not start
  /// from weights of the hub.
  Status writeNew(const std::string &directory) {
    StoredType type = options_.type.value_or(StoredType::F32);
    std::vector<SafetensorsItem> items;
    std::vector<std::string> unnamed;
    for (uint32_t p = 0; p < index_.parameters.size(); ++p)
      if (const CheckpointParameter &parameter = index_.parameters[p]; !parameter.hub.names.empty())
        items.push_back(itemOf(parameter.hub.names.front(), p, parameter.hub.transposed, type));
      else if (parameter.trainable)
        unnamed.push_back("'" + parameter.name + "' " + shapeText(parameter.storedShape()));
    if (!unnamed.empty())
      return userError(snapshot_.path() + ": contains no hub checkpoint names for " +
                       list(unnamed) + ", and " + options_.hub +
                       " contains no weights. Export the model with zorse-torch-export --hf, "
                       "compile and train it again, or give a directory with weights");
    if (Status status = writeSafetensors(directory + "/" + kModelFile, std::move(items), &problem_,
                                         ofPyTorch());
        status.failed())
      return status;
    return copyCompanions(options_.hub, directory, type);
  }

  /// Writes an adapter in the format that PEFT reads.
  Status writeAdapter(const std::string &directory) {
    const bundle::Lora &lora = *index_.hub.lora;
    std::vector<SafetensorsItem> items;
    std::vector<std::string> others;
    for (uint32_t p = 0; p < index_.parameters.size(); ++p) {
      const CheckpointParameter &parameter = index_.parameters[p];
      if (parameter.hub.adapter && !parameter.hub.names.empty())
        items.push_back(itemOf(parameter.hub.names.front(), p, parameter.hub.transposed,
                               options_.type.value_or(StoredType::F32)));
      else if (parameter.trainable)
        others.push_back("'" + parameter.name + "'");
    }
    if (!others.empty())
      return userError(
          snapshot_.path() +
          ": trains parameters other than its adapters, which an adapter file cannot store: " +
          list(others) + "; freeze them when the model is compiled (--freeze=PATTERN)");
    if (Status status = writeSafetensors(directory + "/adapter_model.safetensors", std::move(items),
                                         &problem_, ofPyTorch());
        status.failed())
      return status;
    ordered_json alpha = lora.alpha;
    if (lora.alpha == double(int64_t(lora.alpha)))
      alpha = int64_t(lora.alpha);
    return writeJson(
        directory + "/adapter_config.json",
        {{"peft_type", "LORA"},
         {"task_type", "CAUSAL_LM"},
         {"base_model_name_or_path", options_.baseName.empty() ? options_.hub : options_.baseName},
         {"r", lora.rank},
         {"lora_alpha", alpha},
         {"lora_dropout", 0.0},
         {"target_modules", lora.targets},
         {"bias", "none"},
         {"fan_in_fan_out", lora.fanInFanOut},
         {"inference_mode", true}});
  }

  const CheckpointReader &snapshot_;
  const CheckpointIndex &index_;
  const HubExportOptions &options_;
  std::optional<TensorFiles> source_; ///< nullopt if the source contains no weights
  std::vector<MatchedTensor> matches_;
  Status problem_; ///< first error while tensors are written
};

} // namespace

Status zorse::exporting::exportHub(const CheckpointReader &checkpoint,
                                   const HubExportOptions &options, std::string &note) {
  return HubExport(checkpoint, options).run(note);
}
