// Finds where the head of a file's graph begins: the first nodes that combine samples or read
// numbers of the batch.
//
// The nodes above them treat every sample separately, which the form of the IR guarantees. Values
// at this frontier can be arbitrary numbers, so the comparison of the loss computes nothing above
// it.
#pragma once

#include "Graph.h"
#include "View.h"

#include "mlir/IR/Value.h"

#include <map>
#include <set>
#include <vector>

namespace zorse::onnx_import {

/// The importer's result for a value of the file.
struct HeadValue {
  enum class Kind : uint8_t { Absent, Constant, Known, Tensor, Loss, Drawn };
  Kind kind = Kind::Absent;
  ElementKind type = ElementKind::Undefined;
  View view;
  mlir::Value value;     ///< Tensor
  double scale = 1;      ///< Tensor: factor between the view's elements and the value
  bool readable = false; ///< Tensor: the view and the scale describe the value completely
};

class HeadFrontier {
public:
  /// \param whole  the head is the whole graph; only inputs are cut
  HeadFrontier(const FlatGraph &graph, const std::vector<HeadValue> &values, bool whole);

  /// Whether cross-entropies are replaced by a function of the label, so that logits are not read.
  bool lossOfLabel = false;

  bool isCut(int value) const;
  /// Whether the shape of a value is known without computing it.
  bool hasShape(int value) const;
  /// Values at the frontier on which the loss depends.
  std::set<int> cuts(int loss) const;
  /// Extends the head by the nodes that produce `above`. Returns false if there are none.
  bool raise(const std::vector<int> &above);
  const std::set<const GraphNode *> &nodes() const { return head; }

private:
  void index(const GraphBody &body);
  void spread();
  bool isCritical(const GraphNode &node) const;
  std::vector<int> operandsOf(const GraphNode &node) const; ///< including those of its bodies

  const std::vector<HeadValue> &values;
  bool whole;
  std::vector<const GraphNode *> order; ///< outer nodes, in topological order
  std::map<int, const GraphNode *> producers;
  std::set<int> inputs, initializers;
  std::set<const GraphNode *> head, raised;
};

} // namespace zorse::onnx_import
