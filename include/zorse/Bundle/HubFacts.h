// What a model's file says about its tensors in checkpoints of the Hugging Face hub: from there it goes into weights.json and the index of snapshots,
// by one rule for all readers and writers.
#pragma once

#include "zorse/Base/Status.h"

#include <nlohmann/json.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace zorse::bundle {

/// Of one parameter.
struct HubFact {
  std::vector<std::string> names; ///< in checkpoints; several where the model ties them; empty: it is not said
  std::vector<std::string> ties;  ///< where it is not said: what the model calls the parameter besides its name in the ONNX file
  bool transposed = false;        ///< a matrix: checkpoints hold the transpose of what the ONNX file holds
  bool adapter = false;           ///< of an adapter (LoRA): checkpoints of the base model do not hold it

  bool empty() const { return names.empty() && ties.empty(); }
};

/// Adapters of low rank: what training adds to the frozen matrix W is (alpha / rank) B A.
struct Lora {
  int64_t rank = 0;
  double alpha = 0;
  std::vector<std::string> targets; ///< names of modules, as PEFT's target_modules
  bool fanInFanOut = false;         ///< the modules keep their weights as [in, out] (GPT-2's Conv1D)
};

/// Of the whole model.
struct HubModel {
  std::vector<std::string> buffers; ///< tensors that checkpoints may hold and that are no parameters
  std::optional<Lora> lora;

  bool empty() const { return buffers.empty() && !lora; }
};

/// Null where nothing is known.
nlohmann::ordered_json toJson(const HubFact &fact);
nlohmann::ordered_json toJson(const HubModel &model);

/// An error for anything that toJson does not write.
Status fromJson(const nlohmann::json &json, HubFact &fact);
Status fromJson(const nlohmann::json &json, HubModel &model);

} // namespace zorse::bundle
