// Information from a model's file about its tensors in checkpoints of the Hugging Face hub. It is
// copied to weights.json and to the index of checkpoints. All readers and writers use the same
// format.
#pragma once

#include "zorse/Base/Status.h"

#include <nlohmann/json.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace zorse::bundle {

/// Hub information of one parameter.
struct HubFact {
  std::vector<std::string> names; ///< names in hub checkpoints; several if the model ties them;
                                  ///< empty: unknown
  std::vector<std::string> ties;  ///< if the names are unknown: other names of the parameter in the
                                  ///< model, apart from its name in the ONNX file
  bool transposed = false; ///< a matrix: hub checkpoints contain the transpose of the ONNX file's
                           ///< tensor
  bool adapter = false; ///< part of an adapter (LoRA): checkpoints of the base model do not contain
                        ///< it

  bool empty() const { return names.empty() && ties.empty(); }
};

/// Low-rank adapters: training adds (alpha / rank) B A to the frozen matrix W.
struct Lora {
  int64_t rank = 0;
  double alpha = 0;
  std::vector<std::string> targets; ///< module names, as in PEFT's target_modules
  bool fanInFanOut = false; ///< the modules store their weights as [in, out] (GPT-2's Conv1D)
};

/// Hub information of the model.
struct HubModel {
  std::vector<std::string> buffers; ///< tensors of hub checkpoints that are not parameters
  std::optional<Lora> lora;

  bool empty() const { return buffers.empty() && !lora; }
};

/// Returns null if nothing is known.
nlohmann::ordered_json toJson(const HubFact &fact);
nlohmann::ordered_json toJson(const HubModel &model);

/// Fails for anything that toJson does not write.
Status fromJson(const nlohmann::json &json, HubFact &fact);
Status fromJson(const nlohmann::json &json, HubModel &model);

} // namespace zorse::bundle
