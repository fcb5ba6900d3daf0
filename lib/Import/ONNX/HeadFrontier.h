// Where the head of a file's graph begins: the nodes from which on samples are combined or numbers of the batch are read.
//
// What lies above them treats every sample alone, which the form of the IR guarantees. Values at this frontier can be any numbers, so nothing above
// it has to be computed to compare the loss with the file's.
#pragma once

#include "Graph.h"
#include "View.h"

#include "mlir/IR/Value.h"

#include <map>
#include <set>
#include <vector>

namespace zorse::onnx_import {

/// What a value of the file is for the importer.
struct HeadValue {
  enum class Kind : uint8_t { Absent, Constant, Known, Tensor, Loss, Drawn };
  Kind kind = Kind::Absent;
  ElementKind type = ElementKind::Undefined;
  View view;
  mlir::Value value;     ///< Tensor
  double scale = 1;      ///< Tensor: the value is this times what the view shows
  bool readable = false; ///< Tensor: the view and the scale say all of it
};

class HeadFrontier {
public:
  /// \param whole  the head is the whole graph: only inputs are cut
  HeadFrontier(const FlatGraph &graph, const std::vector<HeadValue> &values, bool whole);

  /// Whether cross-entropies stand for themselves: their logits are not read.
  bool lossOfLabel = false;

  bool isCut(int value) const;
  /// Whether only the shape of a value may be taken, in place of computing it.
  bool hasShape(int value) const;
  /// Values at the frontier that the loss depends on.
  std::set<int> cuts(int loss) const;
  /// Lets the head begin above the nodes that yield values. False: no node does.
  bool raise(const std::vector<int> &above);
  const std::set<const GraphNode *> &nodes() const { return head; }

private:
  void index(const GraphBody &body);
  void spread();
  bool isCritical(const GraphNode &node) const;
  std::vector<int> operandsOf(const GraphNode &node) const; ///< with those of its bodies

  const std::vector<HeadValue> &values;
  bool whole;
  std::vector<const GraphNode *> order; ///< outer nodes, in topological order
  std::map<int, const GraphNode *> producers;
  std::set<int> inputs, initializers;
  std::set<const GraphNode *> head, raised;
};

} // namespace zorse::onnx_import
