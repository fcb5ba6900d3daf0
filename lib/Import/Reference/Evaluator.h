// Evaluates values of an ONNX graph at concrete shapes, as the specification of the operators says: plain loops over dense arrays in f64 and int64.
// It knows nothing of samples, of views or of what the importer makes of a node, so that it can say whether the importer is right.
#pragma once

#include "Call.h"

#include "../ONNX/Graph.h"
#include "../ONNX/Loader.h"

#include <functional>
#include <map>
#include <optional>
#include <string>

namespace zorse::onnx_reference {

struct Options {
  int64_t mostElements = int64_t(1) << 26; ///< of all results together
  /// Cross-entropies are a function of the label instead of the logits, which are not computed: for heads whose logits are too large.
  bool lossOfLabel = false;
};

/// Stands for the cross-entropy at a position with this label, where Options::lossOfLabel is set.
double lossOfLabel(int64_t label);

class Evaluator {
public:
  /// Values that are given instead of computed. None: it is computed from its node, or read if it is an initializer.
  using Given = std::function<std::optional<Array>(int value)>;
  /// The shape of a value that is given, if only its shape is needed.
  using GivenShape = std::function<std::optional<Shape>(int value)>;

  Evaluator(const onnx_import::FlatGraph &graph, onnx_import::LoadedModel &model, Options options, Given given, GivenShape givenShape);

  /// The value with this number; null with `problem` set where it cannot be computed.
  const Array *evaluate(int value);

  /// "operator X of node 'n' is not known" and the like.
  const std::string &problem() const { return why; }
  /// Operators that are implemented.
  static bool knows(const onnx_import::GraphNode &node);

private:
  bool index(const onnx_import::GraphBody &body);
  bool supply(int value); ///< from what is given or an initializer; false: it must be computed, or `why` is set
  std::vector<int> needs(const GraphNode &node);
  bool apply(const GraphNode &node);
  bool applyIf(const GraphNode &node);
  bool applyShape(const GraphNode &node);
  // An element of a sequence is taken from what the sequence is made of: sequences are no arrays.
  std::vector<int> needsOfElement(const GraphNode &node);
  bool applyElement(const GraphNode &node);
  bool store(int value, Array array);

  const onnx_import::FlatGraph &graph;
  onnx_import::LoadedModel &model;
  Options options;
  Given given;
  GivenShape givenShape;
  std::map<int, const GraphNode *> producers;
  std::map<int, const onnx::Tensor *> initializers;
  std::map<int, Array> values;
  int64_t elements = 0;
  std::string why;
};

/// A tensor of the file.
Result<Array> readTensor(onnx_import::LoadedModel &model, const onnx::Tensor &tensor);

} // namespace zorse::onnx_reference
