// Names of a file's tensors in checkpoints of the Hugging Face hub, read from the file's facts. For
// the form stored in bundles, see zorse/Bundle/HubFacts.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace zorse {

/// The name of a parameter in checkpoints of the Hugging Face hub, read from the file's facts.
struct HubName {
  std::vector<std::string> names; ///< several if the model ties them; empty if the file has no name
  std::vector<std::string> ties; ///< if `names` is empty: other names of the parameter in the model
  bool transposed = false;       ///< for a matrix: checkpoints contain its transpose
  bool adapter = false; ///< belongs to an adapter (LoRA); checkpoints of the base model do not
                        ///< contain it
};

/// Hub data of the file that do not belong to a parameter.
struct HubModel {
  std::vector<std::string> buffers; ///< names of tensors that are not parameters
  struct Lora {
    int64_t rank = 0;
    double alpha = 0;
    std::vector<std::string> targets;
    bool fanInFanOut = false;
  };
  std::optional<Lora> lora;
};

} // namespace zorse
