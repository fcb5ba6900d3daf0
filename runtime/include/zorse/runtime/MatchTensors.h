// Assigns tensors of exported weights to parameters: by the names of the ONNX file, by the model's
// facts, or by similar names.
#pragma once

#include "zorse/Bundle/HubFacts.h"
#include "zorse/runtime/TensorFiles.h"

#include <string>
#include <vector>

namespace zorse::runtime {

/// A parameter to find.
struct WantedTensor {
  std::string name;           ///< name in the ONNX file
  std::vector<int64_t> shape; ///< shape in the ONNX file
  bool trainable = true;
  bool floating = true; ///< elements are converted to a floating-point type
  bundle::HubFact hub;
  bool constant = false; ///< a constant of the graph; a file may omit it
};

/// The tensors found for a parameter.
struct MatchedTensor {
  std::vector<std::string> names; ///< bitwise equal tensors of the file; several if the model ties
                                  ///< them; empty: none
  bool transposed = false; ///< a matrix that the file stores transposed relative to the ONNX file
};

struct TensorMatching {
  std::vector<MatchedTensor> parameters; ///< one per wanted tensor
  bool byOnnxNames = false;              ///< the file has the names and layouts of the ONNX file
  std::string note; ///< human-readable: decisions and unused tensors; empty: nothing to report
};

/// Treatment of tensors that match no parameter: an error, or ignored.
enum class UnmatchedTensorPolicy : uint8_t { Refuse, Keep };

/// Three cases, in this order:
/// - The file has the names of the ONNX file. All trained parameters must exist. Tensors that the
///   model does not have are listed in the note. Frozen parameters that are missing are not
///   searched elsewhere.
/// - The facts specify the names of parameters in weights of the Hub. Those tensors must exist,
///   trained or frozen, except adapters.
/// - There are no facts. The names of the ONNX file are used, with a common prefix added or
///   removed; exactly one prefix must fit. Matrices may be transposed if their shapes require it.
/// In the last two cases, unless `leftOver` is Keep, every tensor of the file must be a parameter,
/// a buffer of the model (or have its name), have a type that is not floating-point, or match one
/// of `skip` (* matches any characters). Errors list names and shapes of all tensors that are
/// missing, unused, ambiguous or of a different shape.
Result<TensorMatching> matchTensors(const TensorFiles &files,
                                    const std::vector<WantedTensor> &wanted,
                                    const bundle::HubModel &model,
                                    const std::vector<std::string> &skip = {},
                                    UnmatchedTensorPolicy leftOver = UnmatchedTensorPolicy::Refuse);

/// "4x8", "scalar".
std::string shapeText(const std::vector<int64_t> &shape);

} // namespace zorse::runtime
