// Reference evaluator: evaluates values of an ONNX graph at concrete shapes, as the specification
// of the operators defines them, with plain loops over dense arrays in f64 and int64. It shares no
// concepts with the importer (samples, views), so that it can check the importer independently.
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
  int64_t maxElements = int64_t(1) << 26; ///< limit on the elements of all results
  /// Replaces cross-entropies by a function of the label and does not compute the logits. For heads
  /// with logits that are too large.
  bool lossOfLabel = false;
};

/// Replaces the cross-entropy at a position with this label if Options::lossOfLabel is set.
double lossOfLabel(int64_t label);

class Evaluator {
public:
  /// Returns a value that is given instead of computed. Nothing: the value is computed from its
  /// node, or read from an initializer.
  using Given = std::function<std::optional<Array>(int value)>;
  /// The shape of a given value, used if only its shape is needed.
  using GivenShape = std::function<std::optional<Shape>(int value)>;

  Evaluator(const onnx_import::FlatGraph &graph, onnx_import::LoadedModel &model, Options options,
            Given given, GivenShape givenShape);

  /// The value with this number. Null, with `problem` set, if it cannot be computed.
  const Array *evaluate(int value);

  /// The last error, for example "operator X of node 'n' is not known".
  const std::string &problem() const { return why; }
  /// Whether the operator is implemented.
  static bool knows(const onnx_import::GraphNode &node);

private:
  bool index(const onnx_import::GraphBody &body);
  bool supply(int value); ///< stores a given value or an initializer; false: it must be computed,
                          ///< or `why` is set
  std::vector<int> needs(const GraphNode &node);
  bool apply(const GraphNode &node);
  bool applyIf(const GraphNode &node);
  bool applyShape(const GraphNode &node);
  // Elements are taken from the nodes that make a sequence, because a sequence is not an array.
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

/// Reads a tensor of the file.
Result<Array> readTensor(onnx_import::LoadedModel &model, const onnx::Tensor &tensor);

} // namespace zorse::onnx_reference
