// Masks that a graph draws by itself: stochastic depth, dropout of whole channels. Exporters write `bernoulli` as uniform numbers that are compared
// with a probability, and libraries write `floor(p + rand())`. Both become the dropout of a constant, whose numbers belong to samples and not to the
// order of drawing. In evaluation a mask is its mean, as dropout's is.
#include "Composition.h"
#include "Importer.h"

#include "llvm/ADT/StringSet.h"

#include <algorithm>

using namespace mlir;
using namespace zorse;
using namespace zorse::onnx_import;

static const char *const kMasksAlone =
    "random numbers are supported as masks: uniform ones that are compared with a constant (rand() < p) or rounded down (floor(p + rand())), and "
    "nn.Dropout. Give other random numbers to the model as an input";

LogicalResult Importer::drawUniform(const GraphNode &node, View view, ElementKind type) {
  Val drawn = fillOver(type, 0, std::move(view));
  drawn.kind = Val::Kind::Drawn;
  drawn.drawn.instance = dropouts++;
  drawn.drawn.low = floatAttribute(node, "low", 0);
  drawn.drawn.high = floatAttribute(node, "high", 1);
  if (!isFloat(type) || !(drawn.drawn.low < drawn.drawn.high))
    return error(node, "expects floats between two bounds, of which the lower comes first");
  return out(node, 0, std::move(drawn)), success();
}

LogicalResult Importer::onRandomUniformLike(const GraphNode &node) {
  const Val &like = in(node, 0);
  auto type = static_cast<ElementKind>(intAttribute(node, "dtype", static_cast<int64_t>(isFloat(like.type) ? like.type : ElementKind::F32)));
  return drawUniform(node, like.view, type);
}

LogicalResult Importer::onRandomUniform(const GraphNode &node) {
  View view;
  for (int64_t size : intsAttribute(node, "shape").value_or(std::vector<int64_t>())) {
    if (size < 1)
      return error(node, "expects a shape of positive sizes");
    if (rows > 1 && size % rows == 0)
      return error(node, "its shape is a number of the file, and holds the samples of the export; expects RandomUniformLike, or rand_like()");
    view.dims.push_back({Factor{size, 0}});
  }
  return drawUniform(node, std::move(view), static_cast<ElementKind>(intAttribute(node, "dtype", 1)));
}

LogicalResult Importer::onBernoulli(const GraphNode &node) {
  const Val &p = in(node, 0);
  auto probability = uniformValue(p);
  if (!probability)
    return error(node, "expects a constant probability");
  auto type = static_cast<ElementKind>(intAttribute(node, "dtype", static_cast<int64_t>(p.type)));
  if (!isFloat(type))
    return error(node, Twine("its elements are no floats; ") + kMasksAlone);
  Val mask = fillOver(type, 0, p.view);
  mask.drawn = {dropouts++, 0, 1, *probability};
  return drawMask(node, mask);
}

LogicalResult Importer::drawMask(const GraphNode &node, const Val &mask) {
  const double kept = mask.drawn.kept;
  if (kept <= 0 || kept >= 1)
    return out(node, 0, fillOver(mask.type, kept <= 0 ? 0 : 1, mask.view)), success();
  ++drawnMasks;
  // 0, or kept * (1 / kept).
  return dropConstant(node, fillOver(mask.type, kept, mask.view), 1 - kept, mask.drawn.instance);
}

/// The bits of an element say which of two events has happened only where both are read the same way.
LogicalResult Importer::compareDrawn(const GraphNode &node, Val drawn, double kept, bool keepsSmall) {
  auto [found, isNew] = keepsSmallNumbers.try_emplace(drawn.drawn.instance, keepsSmall);
  if (!isNew && found->second != keepsSmall)
    return error(node, "compares random numbers that another node has compared the other way round; draw numbers of its own for each");
  drawn.drawn.kept = kept;
  if (node.op == "Floor")
    return drawMask(node, drawn);
  drawn.type = ElementKind::Bool;
  return out(node, 0, std::move(drawn)), success();
}

std::optional<LogicalResult> Importer::applyToDrawn(const GraphNode &node) {
  const std::string &op = node.op;
  size_t which = node.inputs.size();
  for (size_t i = node.inputs.size(); i-- > 0;)
    if (in(node, i).kind == Val::Kind::Drawn)
      which = i;
  if (which == node.inputs.size() || op == "Shape" || op == "Size" || (op == "CastLike" && which == 1))
    return std::nullopt; // of which the type or the shape is read.
  Val x = in(node, which);
  Drawn &drawn = x.drawn;
  const bool isCompared = drawn.kept >= 0;
  if (op == "Identity")
    return out(node, 0, std::move(x)), success();
  if (op == "Cast" || op == "CastLike") {
    const ElementKind type = op == "Cast" ? static_cast<ElementKind>(intAttribute(node, "to", 0)) : in(node, 1).type;
    if (isFloat(type)) {
      x.type = type;
      return isCompared ? drawMask(node, x) : (out(node, 0, std::move(x)), success());
    }
    if (isCompared && type == ElementKind::Bool)
      return out(node, 0, std::move(x)), success();
  }
  if (!isCompared && op == "Floor") { // 0 below 1, and 1 from there
    if (drawn.low >= 0 && drawn.low < 1 && drawn.high > 1 && drawn.high <= 2)
      return compareDrawn(node, std::move(x), (drawn.high - 1) / (drawn.high - drawn.low), /*keepsSmall=*/false);
    if (drawn.low >= 0 && drawn.high <= 1)
      return out(node, 0, fillOver(x.type, 0, x.view)), success();
  }
  static const llvm::StringSet<> kOfTwo{"Add", "Sub", "Mul", "Div", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"};
  if (isCompared || !kOfTwo.contains(op))
    return error(node, kMasksAlone);
  const Val &other = in(node, 1 - which);
  auto number = uniformValue(other);
  if (!number || other.rank() > x.rank() || other.view.elements() != 1)
    return error(node, kMasksAlone);
  if (op == "Add" || (op == "Sub" && which == 0)) {
    const double shift = op == "Add" ? *number : -*number;
    drawn.low += shift, drawn.high += shift;
    return out(node, 0, std::move(x)), success();
  }
  if ((op == "Mul" || (op == "Div" && which == 0)) && *number > 0) {
    const double factor = op == "Mul" ? *number : 1 / *number;
    drawn.low *= factor, drawn.high *= factor;
    return out(node, 0, std::move(x)), success();
  }
  if (op == "Sub" || op == "Mul" || op == "Div")
    return error(node, kMasksAlone);
  const bool keepsSmall = (op[0] == 'L') == (which == 0);
  const double below = std::clamp((*number - drawn.low) / (drawn.high - drawn.low), 0.0, 1.0);
  return compareDrawn(node, std::move(x), keepsSmall ? below : 1 - below, keepsSmall);
}

void Importer::addDrawnOps(OperatorTable &table) {
  // What an exporter's generator would have drawn is of no account: masks are a function of --seed, step, sample and element.
  table.add({"RandomUniform"}, 0, 0, "dtype:i high:f low:f seed:f~ shape:is!", &Importer::onRandomUniform);
  table.add({"RandomUniformLike"}, 1, 1, "dtype:i high:f low:f seed:f~", &Importer::onRandomUniformLike);
  table.add({"Bernoulli"}, 1, 1, "dtype:i seed:f~", &Importer::onBernoulli);
}
