// What a file's facts say about its tensors in checkpoints of the Hugging Face hub. What bundles say of it: zorse/Bundle/HubFacts.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace zorse {

/// The name of a parameter in checkpoints of the Hugging Face hub, as the file's facts say.
struct HubName {
  std::vector<std::string> names; ///< several where the model ties them; empty: the file does not say it
  std::vector<std::string> ties;  ///< where it does not: what the model calls the parameter besides the initializer's name
  bool transposed = false;        ///< a matrix: checkpoints hold its transpose
  bool adapter = false;           ///< of an adapter (LoRA), which checkpoints of the base model do not hold
};

/// What the file's facts say about checkpoints of the hub apart from parameters.
struct HubModel {
  std::vector<std::string> buffers; ///< names of tensors that are no parameters
  struct Lora {
    int64_t rank = 0;
    double alpha = 0;
    std::vector<std::string> targets;
    bool fanInFanOut = false;
  };
  std::optional<Lora> lora;
};

} // namespace zorse
