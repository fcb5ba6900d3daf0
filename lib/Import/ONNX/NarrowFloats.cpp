// Rounds results to the 16-bit float types of a file, operator by operator. The computation itself
// uses a wider type.
#include "Kernels.h"
#include "LoopNest.h"
#include "OpContext.h"

#include "llvm/ADT/APFloat.h"
#include "llvm/ADT/StringSet.h"

using namespace mlir;
using namespace zorse;
using namespace zorse::onnx_import;

/// The value of a 16-bit type that is nearest to x.
static double nearestIn(ElementKind kind, double x) {
  llvm::APFloat number(x);
  bool lost = false;
  number.convert(kind == ElementKind::F16 ? llvm::APFloat::IEEEhalf() : llvm::APFloat::BFloat(),
                 llvm::APFloat::rmNearestTiesToEven, &lost);
  number.convert(llvm::APFloat::IEEEdouble(), llvm::APFloat::rmNearestTiesToEven, &lost);
  return number.convertToDouble();
}

/// Whether the operator only moves elements. Its results are already rounded, and so are the
/// gradients of their readers when they are added.
static bool isMove(const GraphNode &node) {
  static const llvm::StringSet<> kMoves{"Cast",
                                        "CastLike",
                                        "Concat",
                                        "ConcatFromSequence",
                                        "Constant",
                                        "Expand",
                                        "ConstantOfShape",
                                        "DepthToSpace",
                                        "Flatten",
                                        "Gather",
                                        "GatherND",
                                        "GatherElements",
                                        "Identity",
                                        "If",
                                        "OneHot",
                                        "Pad",
                                        "Reshape",
                                        "SequenceAt",
                                        "SequenceConstruct",
                                        "Slice",
                                        "Split",
                                        "SplitToSequence",
                                        "Squeeze",
                                        "SpaceToDepth",
                                        "Tile",
                                        "Transpose",
                                        "Trilu",
                                        "Unsqueeze",
                                        "ReverseSequence"};
  return kMoves.contains(node.op);
}

ImportedValue zorse::onnx_import::rounded(ImportState &state, const ImportedValue &value,
                                          ElementKind type) {
  if (!isNarrow(type) || value.view.elements() == 0)
    return value;
  if (value.isConstant())
    return foldElementwise(state, {value}, value.type,
                           floatKernel1([type](double x) { return nearestIn(type, x); }));
  if (!value.isTensor())
    return value;
  ImportedValue out = value.scale().is(1) ? value : copied(state, value);
  const bool sampled = isBatched(out);
  Type to = type == ElementKind::F16 ? Type(state.builder.getF16Type())
                                     : Type(state.builder.getBF16Type());
  out.tensor().value = create<RoundOp>(state, out.value(), to, /*straightThrough=*/!sampled,
                                       /*perOperator=*/sampled);
  return out;
}

void zorse::onnx_import::roundResults(OpContext &op) {
  if (isMove(op.node))
    return;
  for (int output : op.node.outputs)
    if (output >= 0 && isNarrow(op.state.values[output].type))
      op.state.values[output] =
          rounded(op.state, op.state.values[output], op.state.values[output].type);
}
