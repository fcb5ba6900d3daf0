// The file's graph with functions inlined and names resolved: nodes in topological order over numbered values.
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
  std::string op;                 ///< operator type; the default domain is implied
  std::string domain;             ///< "" for the default one
  std::string name;               ///< the node's name, or one made from its first output
  int64_t opset = 0;              ///< of `domain`
  bool detach = false;            ///< gradients stop here
  bool squeezesOnes = false;      ///< a Squeeze that leaves dimensions of other sizes than 1 as they are
  std::optional<int64_t> padding; ///< of an embedding: the row without gradient, -1 if there is none; empty: the file does not say
  std::vector<int> inputs;        ///< value numbers, -1 where omitted
  std::vector<int> outputs;       ///< value numbers, -1 where omitted
  std::map<std::string, std::shared_ptr<const onnx::Attribute>> attributes;
  std::map<std::string, std::shared_ptr<GraphBody>> bodies; ///< graph attributes (If, Loop, Scan)

  std::string partOf; ///< the operator of the file that this one is a part of; empty: it stands there itself

  std::string describe() const {
    return "node '" + name + "' (" + (partOf.empty() ? (domain.empty() ? "" : domain + ".") + op : partOf + ", in its " + op) + ")";
  }
};

/// A list of nodes and the values it yields; shares value numbers with the graph around it.
struct GraphBody {
  std::vector<GraphNode> nodes;
  std::vector<int> inputs; ///< of a subgraph, as Loop and Scan have them
  std::vector<int> outputs;
  std::vector<std::pair<int, const onnx::Tensor *>> initializers;
};

struct FlatGraph {
  GraphBody body;
  std::vector<std::string> valueNames;
  std::vector<std::pair<int, const onnx::ValueInfo *>> inputs; ///< without those that are initializers
};

/// Resolves `model`'s graph: inlines functions (attributes bound), orders nodes. An error on cycles, undefined or doubly defined values, or too deep
/// nesting.
Result<FlatGraph> flatten(const LoadedModel &model);

} // namespace zorse::onnx_import
