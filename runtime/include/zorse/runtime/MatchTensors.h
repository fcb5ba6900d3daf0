// Which tensor of a checkpoint is which parameter: by the names of the ONNX file, by what the model's facts say, or by names that are alike.
#pragma once

#include "zorse/Bundle/HubFacts.h"
#include "zorse/runtime/TensorFiles.h"

#include <string>
#include <vector>

namespace zorse::runtime {

/// A parameter that is looked for.
struct WantedTensor {
  std::string name;           ///< of the ONNX file
  std::vector<int64_t> shape; ///< of the ONNX file
  bool trainable = true;
  bool floating = true; ///< numbers are converted to a floating-point type
  bundle::HubFact hub;
  bool constant = false; ///< a constant of the graph: no checkpoint need have it
};

/// What was found for it.
struct MatchedTensor {
  std::vector<std::string> names; ///< tensors of the checkpoint, equal to the bit; several where the model ties them. Empty: it has none
  bool transposed = false;        ///< a matrix: the checkpoint holds the transpose of what the ONNX file holds
};

struct TensorMatching {
  std::vector<MatchedTensor> parameters; ///< one per wanted tensor
  bool byOnnxNames = false;              ///< the checkpoint has the names and layouts of the ONNX file
  std::string note;                      ///< what was decided and what is left over, for people; empty: nothing worth saying
};

/// What becomes of tensors that no parameter wants: an error, or they are not looked at.
enum class LeftOver : uint8_t { Refuse, Keep };

/// Three cases, in this order:
/// - The checkpoint has the names of the ONNX file: all trained parameters must be there; what the model does not have goes into the note, and frozen
///   parameters that are not there are not looked for elsewhere.
/// - The facts say what parameters are called in checkpoints of the hub: those must be there, trained or frozen, but for adapters.
/// - There are no facts: the names of the ONNX file but for a beginning, the same for all, that the file has more or less; it must be the only one
///   that fits. Matrices may be transposed where their shapes say so.
/// In the last two, unless `leftOver` is Keep, every tensor of the file must be a parameter, a buffer of the model (or of its name), no
/// floating-point number, or match one of `skip` (* stands for any characters). Errors list names and shapes of all that is missing, left over, of
/// another shape or ambiguous.
Result<TensorMatching> matchTensors(const TensorFiles &files, const std::vector<WantedTensor> &wanted, const bundle::HubModel &model,
                                    const std::vector<std::string> &skip = {}, LeftOver leftOver = LeftOver::Refuse);

/// "4x8", "scalar".
std::string shapeText(const std::vector<int64_t> &shape);

} // namespace zorse::runtime
