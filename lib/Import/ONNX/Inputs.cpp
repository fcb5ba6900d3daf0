// Inputs of the file: their shapes, and the number of samples that represents any number of them.
#include "Interpret.h"
#include "Lengths.h"

#include <algorithm>

using namespace mlir;
using namespace zorse;
using namespace zorse::onnx_import;

namespace {

/// An input as declared by the file.
struct Input {
  int value = -1;
  std::string name;
  ElementKind type = ElementKind::Undefined;
  std::vector<int64_t> shape; ///< dimension 0 is 0 if it is symbolic
};

} // namespace

/// \param baked  number of samples that an earlier input fixed, and this one may fix for later
/// ones; 0: none. \param bakedBy  name of that input
static LogicalResult readInput(ImportState &state, const onnx::ValueInfo &info, Input &input,
                               int64_t &baked, std::string &bakedBy) {
  if (!info.type().has_tensor_type())
    return error(state, "input '" + info.name() + "' is not a tensor");
  const onnx::Type::TensorType &tensor = info.type().tensor_type();
  input.name = info.name();
  input.type = static_cast<ElementKind>(tensor.elem_type());
  if (!byteSize(input.type))
    return error(state, "input '" + info.name() + "': element type " + Twine(name(input.type)) +
                            " is not supported");
  if (!tensor.has_shape() || tensor.shape().dim_size() == 0)
    return error(state, "input '" + info.name() +
                            "': expects a shape whose dimension 0 counts samples, found " +
                            (tensor.has_shape() ? "a scalar" : "none"));
  for (int i = 0; i < tensor.shape().dim_size(); ++i) {
    const auto &dim = tensor.shape().dim(i);
    int64_t size = dim.has_dim_value() ? dim.dim_value() : 0;
    std::string symbol = dim.has_dim_param() ? dim.dim_param() : "";
    if (i == 0) {
      if (size > 0) {
        if (baked && baked != size)
          return error(state,
                       "inputs '" + bakedBy + "' and '" + info.name() + "' hold " + Twine(baked) +
                           " and " + Twine(size) +
                           " samples in dimension 0; expects one number of samples for all inputs");
        baked = size;
        bakedBy = info.name();
      }
    } else if (size <= 0) {
      auto bound = state.options.dims.find(symbol);
      if (bound != state.options.dims.end())
        size = bound->second;
      else if (i == 1 && state.options.sequence > 0)
        size = state.options.sequence;
      else
        return error(state, "input '" + info.name() + "': dimension " + Twine(i) +
                                (symbol.empty() ? Twine("") : " ('" + symbol + "')") +
                                " is symbolic; give the sequence length (--seq-length), or its "
                                "value by name (--dim " +
                                (symbol.empty() ? "name" : symbol) + "=N)");
    } else if (i == 1 && state.options.sequence > 0 && state.options.sequence != size) {
      return error(state, "input '" + info.name() + "': the file fixes dimension 1 to " +
                              Twine(size) + ", but a sequence of " + Twine(state.options.sequence) +
                              " is asked for; export with a symbolic sequence dimension");
    }
    if (size > (int64_t(1) << 32))
      return error(state, "input '" + info.name() + "': dimension " + Twine(i) + " is too large");
    input.shape.push_back(size);
  }
  return success();
}

/// Adds the argument of an input. \param group  samples per row; 0 or 1: a row is a sample
static LogicalResult bindInput(ImportState &state, Input &input, int64_t group) {
  SmallVector<int64_t> shape{ShapedType::kDynamic};
  input.shape[0] = state.rows;
  if (group > 1)
    input.shape.insert(input.shape.begin() + 1, group);
  shape.append(input.shape.begin() + 1, input.shape.end());
  if (!isSensible(input.shape))
    return error(
        state,
        "input '" + input.name +
            "': its shape is too large, at most 2^44 elements and 16 dimensions are supported");
  if (!isFloat(input.type) && input.type != ElementKind::I64 && input.type != ElementKind::I32 &&
      input.type != ElementKind::Bool)
    return error(state, "input '" + input.name + "': element type " + Twine(name(input.type)) +
                            " is not supported; use int64, int32, bool or a float type");
  Value argument =
      state.block->addArgument(RankedTensorType::get(shape, elementType(state, input.type)),
                               NameLoc::get(state.builder.getStringAttr(input.name)));
  state.inputArguments[input.name] = static_cast<unsigned>(state.inputNames.size());
  state.inputNames.push_back(input.name);
  ImportedValue &value = state.values[input.value] = wrap(argument, input.type, input.shape);
  if (group > 1) { // the file counts single samples
    FactorList &samples = value.view.dims[0], &inside = value.view.dims[1];
    samples.insert(samples.end(), inside.begin(), inside.end());
    value.view.dims.erase(value.view.dims.begin() + 1);
  }
  return success();
}

// Dimension 0 is the sample axis. `rows` is the file's batch size if it is fixed, otherwise a
// number that divides no number of the file.
LogicalResult zorse::onnx_import::bindInputs(ImportState &state) {
  std::vector<Input> inputs;
  int64_t baked = 0;
  std::string bakedBy;
  for (auto &[value, info] : state.graph.inputs) {
    inputs.emplace_back().value = value;
    if (failed(readInput(state, *info, inputs.back(), baked, bakedBy)))
      return failure();
  }
  if (inputs.empty())
    return error(state, "the graph has no inputs: nothing carries samples");
  const int64_t group = state.options.groupRows;
  if (group > 0 && baked > 0 && baked != group)
    return error(state, "input '" + bakedBy + "' holds " + Twine(baked) +
                            " samples in dimension 0: the file is the loss of a group of " +
                            Twine(baked) + "; give --group-rows=" + Twine(baked) + ", not " +
                            Twine(group) + ", or export with a symbolic batch");
  state.rowsBaked = baked > 0 || group > 0;
  state.rows = group > 0 ? 1 : baked;
  if (!state.rowsBaked)
    choosePlaceholder(state);
  state.notes.push_back(group > 0 ? "groups of " + std::to_string(group) + " samples"
                        : baked > 0
                            ? "the file fixes " + std::to_string(state.rows) +
                                  " samples; the sample axis is found from there and made dynamic"
                            : "samples are a symbolic dimension");

  for (Input &input : inputs)
    if (failed(bindInput(state, input, group)))
      return failure();
  return success();
}
