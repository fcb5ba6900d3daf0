// Random masks drawn by the graph itself: stochastic depth, dropout of whole channels. Exporters
// write `bernoulli` as uniform numbers compared with a probability; libraries write `floor(p +
// rand())`. Both become the dropout of a constant. Its random numbers depend on the sample and not
// on the order of drawing. In evaluation a mask is replaced by its mean, as in dropout.
#include "Arithmetic.h"
#include "Interpret.h"
#include "Lengths.h"
#include "OpContext.h"

#include "llvm/ADT/StringSet.h"

#include <algorithm>

using namespace mlir;
using namespace zorse;
using namespace zorse::onnx_import;

static const char *const kMasksAlone =
    "random numbers are supported as masks: uniform ones that are compared with a constant (rand() "
    "< p) or rounded down (floor(p + rand())), and "
    "nn.Dropout. Give other random numbers to the model as an input";

static LogicalResult drawUniform(OpContext &op, View view, ElementKind type) {
  const Drawn drawn{op.state.dropouts++, op.real("low"), op.real("high")};
  if (!isFloat(type) || !(drawn.low < drawn.high))
    return op.error("expects floats between two bounds, of which the lower comes first");
  return op.result({type, fillOver(type, 0, std::move(view)).view, drawn});
}

static LogicalResult importRandomUniformLike(OpContext &op) {
  const ImportedValue &like = op.operand(0);
  auto type = static_cast<ElementKind>(
      op.integer("dtype", static_cast<int64_t>(isFloat(like.type) ? like.type : ElementKind::F32)));
  return drawUniform(op, like.view, type);
}

static LogicalResult importRandomUniform(OpContext &op) {
  View view;
  for (int64_t size : op.integers("shape").value_or(std::vector<int64_t>())) {
    if (size < 1)
      return op.error("expects a shape of positive sizes");
    if (op.state.rows > 1 && size % op.state.rows == 0)
      return op.error("its shape is a number of the file, and holds the samples of the export; "
                      "expects RandomUniformLike, or rand_like()");
    view.dims.push_back({Factor{size, 0}});
  }
  return drawUniform(op, std::move(view), static_cast<ElementKind>(op.integer("dtype")));
}

/// The result of the comparison as floats 0 and 1.
static LogicalResult drawMask(OpContext &op, ElementKind type, const View &view,
                              const Drawn &drawn) {
  if (drawn.kept <= 0 || drawn.kept >= 1)
    return op.result(fillOver(type, drawn.kept <= 0 ? 0 : 1, view));
  ++op.state.drawnMasks;
  // 0, or kept * (1 / kept).
  return dropConstant(op, fillOver(type, drawn.kept, view), 1 - drawn.kept, drawn.rngId);
}

static LogicalResult importBernoulli(OpContext &op) {
  const ImportedValue &p = op.operand(0);
  auto probability = uniformValue(op.state, p);
  if (!probability)
    return op.error("expects a constant probability");
  auto type = static_cast<ElementKind>(op.integer("dtype", static_cast<int64_t>(p.type)));
  if (!isFloat(type))
    return op.error(Twine("its elements are no floats; ") + kMasksAlone);
  return drawMask(op, type, p.view, {op.state.dropouts++, 0, 1, *probability});
}

/// \param kept  probability of `true`
/// \param keepsSmall  whether small numbers give `true`. Comparisons that share random numbers must
/// agree on it, because the bits of an element then distinguish the events.
static LogicalResult compareDrawn(OpContext &op, ImportedValue value, double kept,
                                  bool keepsSmall) {
  Drawn &drawn = value.drawn();
  auto [found, isNew] = op.state.keepsSmallNumbers.try_emplace(drawn.rngId, keepsSmall);
  if (!isNew && found->second != keepsSmall)
    return op.error("compares random numbers that another node has compared the other way round; "
                    "draw separate numbers for each");
  drawn.kept = kept;
  if (op.node.op == "Floor")
    return drawMask(op, value.type, value.view, drawn);
  value.type = ElementKind::Bool;
  return op.result(std::move(value));
}

std::optional<LogicalResult> zorse::onnx_import::applyToDrawn(OpContext &op) {
  const std::string &which = op.node.op;
  size_t at = op.node.inputs.size();
  for (size_t i = op.node.inputs.size(); i-- > 0;)
    if (op.operand(i).isDrawn())
      at = i;
  if (at == op.node.inputs.size() || which == "Shape" || which == "Size" ||
      (which == "CastLike" && at == 1))
    return std::nullopt; // only its type or shape is read
  ImportedValue x = op.operand(at);
  Drawn &drawn = x.drawn();
  const bool isCompared = drawn.kept >= 0;
  if (which == "Identity")
    return op.result(std::move(x));
  if (which == "Cast" || which == "CastLike") {
    const ElementKind type = which == "Cast" ? static_cast<ElementKind>(op.integer("to"))
                                             : op.operand(1).type;
    if (isFloat(type)) {
      x.type = type;
      return isCompared ? drawMask(op, x.type, x.view, drawn) : op.result(std::move(x));
    }
    if (isCompared && type == ElementKind::Bool)
      return op.result(std::move(x));
  }
  if (!isCompared && which == "Floor") { // 0 below 1, otherwise 1
    if (drawn.low >= 0 && drawn.low < 1 && drawn.high > 1 && drawn.high <= 2)
      return compareDrawn(op, std::move(x), (drawn.high - 1) / (drawn.high - drawn.low),
                          /*keepsSmall=*/false);
    if (drawn.low >= 0 && drawn.high <= 1)
      return op.result(fillOver(x.type, 0, x.view));
  }
  static const llvm::StringSet<> kOfTwo{"Add",  "Sub",         "Mul",     "Div",
                                        "Less", "LessOrEqual", "Greater", "GreaterOrEqual"};
  if (isCompared || !kOfTwo.contains(which))
    return op.error(kMasksAlone);
  const ImportedValue &other = op.operand(1 - at);
  auto number = uniformValue(op.state, other);
  if (!number || other.rank() > x.rank() || other.view.elements() != 1)
    return op.error(kMasksAlone);
  if (which == "Add" || (which == "Sub" && at == 0)) {
    const double shift = which == "Add" ? *number : -*number;
    drawn.low += shift, drawn.high += shift;
    return op.result(std::move(x));
  }
  if ((which == "Mul" || (which == "Div" && at == 0)) && *number > 0) {
    const double factor = which == "Mul" ? *number : 1 / *number;
    drawn.low *= factor, drawn.high *= factor;
    return op.result(std::move(x));
  }
  if (which == "Sub" || which == "Mul" || which == "Div")
    return op.error(kMasksAlone);
  const bool keepsSmall = (which[0] == 'L') == (at == 0);
  const double below = std::clamp((*number - drawn.low) / (drawn.high - drawn.low), 0.0, 1.0);
  return compareDrawn(op, std::move(x), keepsSmall ? below : 1 - below, keepsSmall);
}

void zorse::onnx_import::registerDrawnOps(OperatorRegistry &registry) {
  registry.add({
      // The exporter's seed has no effect: masks are a function of --seed, step, sample and
      // element.
      {{"RandomUniform"},
       0,
       0,
       {integer("dtype", 1), real("high", 1), real("low", 0), ignored(real("seed")),
        required(integers("shape"))},
       importRandomUniform},
      {{"RandomUniformLike"},
       1,
       1,
       {integer("dtype"), real("high", 1), real("low", 0), ignored(real("seed"))},
       importRandomUniformLike},
      {{"Bernoulli"}, 1, 1, {integer("dtype"), ignored(real("seed"))}, importBernoulli},
  });
}
