// Exports the parameters of a snapshot as a checkpoint of the Hugging Face hub, or as an adapter in
// the PEFT layout.
#pragma once

#include "zorse/runtime/CheckpointFiles.h"

#include <optional>
#include <string>
#include <vector>

namespace zorse::exporting {

struct HubExportOptions {
  std::string hub;    ///< directory that the run started from, with weights (TensorFiles::open) or
                      ///< without
  std::string output; ///< output directory; must not exist, or be empty
  std::optional<runtime::StoredType> type; ///< type of all floating-point tensors; nullopt: types
                                           ///< of `hub`, or f32 if it has no weights
  std::vector<std::string> skip; ///< patterns of tensors that --load-weights ignored; they are
                                 ///< copied unchanged
  std::string baseName;          ///< base model name in an adapter's configuration; empty: `hub`
};

/// Writes `output` completely or not at all.
///
/// - Model without adapters: writes the tensors of `hub` with their names and files and the trained
///   values, and copies its configuration and tokenizer.
/// - Model with adapters (CheckpointIndex::hub): writes only the adapters and their configuration.
///
/// Returns an error if frozen parameters of the run differ from those of `hub`.
/// \param note receives a message for the user; may stay empty
runtime::Status exportHub(const runtime::CheckpointReader &checkpoint,
                          const HubExportOptions &options, std::string &note);

} // namespace zorse::exporting
