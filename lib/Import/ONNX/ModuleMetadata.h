// Metadata of a file about its parameters, independent of their uses. The helper
// python/zorse/metadata.py writes it; otherwise the importer reads the traces that PyTorch's dynamo
// exporter leaves.
#pragma once

#include "zorse/Base/Status.h"
#include "zorse/Import/ONNX/HubName.h"

#include "onnx_wire.pb.h"

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace zorse::onnx_import {

struct ParameterMetadata {
  std::optional<std::vector<int64_t>> shape;
  bool trained = true;         ///< requires_grad
  std::optional<bool> reached; ///< whether the outputs depend on it
  std::optional<bool> read;    ///< whether the forward pass reads it
};

/// An initializer that contains a parameter under another name.
struct StoredFact {
  std::string parameter, form; ///< form: same, transpose, reshape or rows
};

struct ModuleMetadata {
  /// Module: all fields, recorded from the module. Exporter: names of parameters and buffers, and
  /// the PyTorch operations of the nodes.
  enum class Source : uint8_t { None, Exporter, Module };
  Source source = Source::None;
  bool namesAll = false; ///< `parameters` contains every parameter of the model, also those missing
                         ///< from the file
  std::map<std::string, ParameterMetadata> parameters;
  std::set<std::string> buffers;
  std::optional<std::set<std::string>> statistics; ///< running means of batch norms in training
                                                   ///< mode; not written by exporters
  std::vector<std::vector<std::string>> ties;      ///< groups of names, each of one parameter
  std::vector<std::vector<std::string>> equal;     ///< parameters that had equal values but are not
                                                   ///< tied; exporters merge them
  std::map<std::string, int64_t> padding;          ///< row without gradient, by embedding weight
  std::map<std::string, StoredFact> stored;
  std::vector<std::string> unsaid; ///< stops or changes of gradients that ONNX cannot express
  std::optional<int64_t> detached; ///< number of times the module detaches a value with a gradient
  std::optional<bool> training;    ///< whether the module was in training mode
  std::set<std::string> used;      ///< parameters named by nodes of the file as their source
  std::map<std::string, HubName> hub; ///< by parameter: its own name in checkpoints of the hub,
                                      ///< without ties
  HubModel hubModel;
  int64_t detaches = 0, lostDetaches = 0; ///< detaches in the file; detaches that nodes mention but
                                          ///< the file does not contain

  /// All names of the parameter `name`, including `name`.
  std::vector<std::string> namesOf(const std::string &name) const;

  /// The names of an initializer's parameter in checkpoints of the hub, ties included. Empty if the
  /// file does not specify them, or if the initializer contains the parameter in a form other than
  /// as is or transposed.
  HubName hubNameOf(const std::string &initializer) const;
};

/// Returns an error if the property exists but is not valid.
Result<ModuleMetadata> readModuleMetadata(const onnx::Model &model);

} // namespace zorse::onnx_import
