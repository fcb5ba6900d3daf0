// The graph of a file with functions inlined and names resolved: nodes in topological order over
// numbered values.
#pragma once

#include "Loader.h"

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace zorse::onnx_import {

struct GraphBody;

struct GraphNode {
  std::string op;                 ///< operator type without its domain
  std::string domain;             ///< "" for the default domain
  std::string name;               ///< name of the node, or one derived from its first output
  int64_t opset = 0;              ///< opset version of `domain`
  bool detach = false;            ///< gradients stop here
  bool squeezesOnes = false;      ///< a Squeeze that ignores dimensions of sizes other than 1
  std::optional<int64_t> padding; ///< for an embedding: row without gradient, -1 if none; empty if
                                  ///< the file does not specify it
  std::vector<int> inputs;        ///< value numbers, -1 if omitted
  std::vector<int> outputs;       ///< value numbers, -1 if omitted
  std::map<std::string, std::shared_ptr<const onnx::Attribute>> attributes;
  std::map<std::string, std::shared_ptr<GraphBody>> bodies; ///< graph attributes (If, Loop, Scan)

  std::string partOf; ///< the operator of the file that this node is a part of; empty if the node
                      ///< itself is in the file

  std::string describe() const {
    return "node '" + name + "' (" +
           (partOf.empty() ? (domain.empty() ? "" : domain + ".") + op
                           : partOf + ", in its " + op) +
           ")";
  }
};

/// A list of nodes and its outputs. Shares value numbers with the enclosing graph.
struct GraphBody {
  std::vector<GraphNode> nodes;
  std::vector<int> inputs; ///< inputs of a subgraph (Loop, Scan)
  std::vector<int> outputs;
  std::vector<std::pair<int, const onnx::Tensor *>> initializers;
};

struct FlatGraph {
  GraphBody body;
  std::vector<std::string> valueNames;
  std::vector<std::pair<int, const onnx::ValueInfo *>> inputs; ///< without inputs that are
                                                               ///< initializers
};

/// Resolves the graph of `model`: inlines functions (with attributes bound) and orders nodes.
/// Returns an error for cycles, for undefined or doubly defined values, and for too deep nesting.
Result<FlatGraph> flatten(const LoadedModel &model);

} // namespace zorse::onnx_import
