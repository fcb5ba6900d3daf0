// What a file says about its parameters, apart from how they are used: what the helper python/zorse/facts.py has written, or what PyTorch's dynamo
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

struct ParameterFact {
  std::optional<std::vector<int64_t>> shape;
  bool trained = true;         ///< requires_grad
  std::optional<bool> reached; ///< the outputs depend on it
  std::optional<bool> read;    ///< the forward pass reads it
};

/// An initializer that holds a parameter under another name.
struct StoredFact {
  std::string parameter, form; ///< form: same, transpose, reshape, rows
};

struct Facts {
  /// Module: everything below, from the module itself. Exporter: names of parameters and buffers, and what PyTorch's operations were.
  enum class Source : uint8_t { None, Exporter, Module };
  Source source = Source::None;
  bool namesAll = false; ///< every parameter of the model is among `parameters`, also one that is not in the file
  std::map<std::string, ParameterFact> parameters;
  std::set<std::string> buffers;
  std::optional<std::set<std::string>> statistics; ///< running means of batch norms whose statistics the module trains; exporters do not write it
  std::vector<std::vector<std::string>> ties;      ///< names of one parameter
  std::vector<std::vector<std::string>> equal;     ///< parameters that are not tied and had equal values: exporters merge them
  std::map<std::string, int64_t> padding;          ///< row without gradient, by table
  std::map<std::string, StoredFact> stored;
  std::vector<std::string> unsaid;    ///< what stops or changes gradients and no ONNX file says
  std::optional<int64_t> detached;    ///< how often the module detaches a value that has a gradient
  std::optional<bool> training;       ///< the module was in training mode
  std::set<std::string> used;         ///< parameters that some node of the file says it was made from
  std::map<std::string, HubName> hub; ///< by parameter: what it alone is called in checkpoints of the hub
  HubModel hubModel;
  int64_t detaches = 0, lostDetaches = 0; ///< in the file; those that its nodes mention and that are not there

  /// All names of the parameter called `name`, itself included.
  std::vector<std::string> namesOf(const std::string &name) const;

  /// What checkpoints of the hub call the parameter that an initializer holds, ties included; no names where the file does not say, or where the
  /// initializer holds the parameter in another form than as it is or transposed.
  HubName hubNameOf(const std::string &initializer) const;
};

/// An error where the property is there and cannot be understood.
Result<Facts> readFacts(const onnx::Model &model);

/// Whether `pattern`, in which each * stands for any characters, matches the whole of `name`.
bool matches(const std::string &pattern, const std::string &name);

} // namespace zorse::onnx_import
