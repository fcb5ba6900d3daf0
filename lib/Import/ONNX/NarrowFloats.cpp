// 16-bit floats of a file: what is computed in more digits is rounded to them, operator by operator.
#include "Importer.h"
#include "Kernels.h"

#include "llvm/ADT/APFloat.h"
#include "llvm/ADT/StringSet.h"

using namespace mlir;
using namespace zorse;
using namespace zorse::onnx_import;

/// The number of a 16-bit type that is nearest to x.
static double nearestIn(ElementKind kind, double x) {
  llvm::APFloat number(x);
  bool lost = false;
  number.convert(kind == ElementKind::F16 ? llvm::APFloat::IEEEhalf() : llvm::APFloat::BFloat(), llvm::APFloat::rmNearestTiesToEven, &lost);
  number.convert(llvm::APFloat::IEEEdouble(), llvm::APFloat::rmNearestTiesToEven, &lost);
  return number.convertToDouble();
}

/// Results of these are elements of their operands: rounded already, and so are gradients of their readers when they are added.
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

Val Importer::rounded(const Val &value, ElementKind type) {
  if (!isNarrow(type) || value.view.elements() == 0)
    return value;
  if (value.isConstant())
    return foldElementwise({value}, value.type, floatKernel1([type](double x) { return nearestIn(type, x); }));
  if (!value.isGraph())
    return value;
  Val out = value.scale.is(1) ? value : copied(value);
  const bool sampled = carriesSamples(out.value.getType());
  Type to = type == ElementKind::F16 ? Type(builder.getF16Type()) : Type(builder.getBF16Type());
  out.value = create<RoundOp>(out.value, to, /*straightThrough=*/!sampled, /*perOperator=*/sampled);
  return out;
}

void Importer::roundResults(const GraphNode &node) {
  if (isMove(node))
    return;
  for (int output : node.outputs)
    if (output >= 0 && isNarrow(values[output].type))
      values[output] = rounded(values[output], values[output].type);
}
