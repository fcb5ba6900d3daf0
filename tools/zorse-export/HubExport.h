// The parameters of a snapshot as a checkpoint of the Hugging Face hub, or as an adapter in the layout of PEFT.
#pragma once

#include "zorse/runtime/SnapshotFiles.h"

#include <optional>
#include <string>
#include <vector>

namespace zorse::exporting {

struct HubExportOptions {
  std::string hub;                         ///< what the run began with: a directory of the hub (TensorFiles::open), or one without weights
  std::string output;                      ///< a directory that is not there yet, or empty
  std::optional<runtime::StoredType> type; ///< of all floating-point tensors; without it those of `hub`, f32 where there are none
  std::vector<std::string> skip;           ///< patterns of tensors that --init left out: they are copied as they are
  std::string baseName;                    ///< of adapters: how the base model is called; empty: `hub`
};

/// Writes `output` whole or not at all. A model without adapters: the tensors of `hub` under the same names, in the same files, with the trained
/// numbers in place of its own, and copies of its configuration and tokenizer. A model with adapters (SnapshotIndex::hub): these alone, and their
/// configuration. It is an error that frozen parameters of the run were others than those of `hub`.
/// \param note  receives what a person should know; may stay empty
runtime::Status exportHub(const runtime::SnapshotReader &snapshot, const HubExportOptions &options, std::string &note);

} // namespace zorse::exporting
