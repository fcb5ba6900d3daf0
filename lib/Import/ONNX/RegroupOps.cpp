// Blocks of positions to channels and back, and small tables of numbers.
#include "Composition.h"

#include <cmath>
#include <limits>

using namespace mlir;
using namespace zorse;
using namespace zorse::onnx_import;

LogicalResult Importer::onDepthToSpace(const GraphNode &node) {
  Val x = in(node, 0);
  const int64_t block = intAttribute(node, "blocksize", 1);
  if ((!x.isGraph() && !x.isConstant()) || x.rank() != 4)
    return error(node, "expects a tensor of samples x channels x height x width");
  std::vector<int64_t> s = x.shape();
  if (block < 1 || s[1] % (block * block) != 0)
    return error(node, "expects channels in blocks of blocksize^2, found " + Twine(s[1]) + " channels and a blocksize of " + Twine(block));
  Composition make(*this, node);
  const int64_t channels = s[1] / (block * block);
  const bool depthFirst = stringAttribute(node, "mode", "DCR") == "DCR";
  Val apart = depthFirst ? make.reshape(x, {s[0], block, block, channels, s[2], s[3]}) : make.reshape(x, {s[0], channels, block, block, s[2], s[3]});
  Val placed = make.transpose(apart, depthFirst ? std::vector<int64_t>{0, 3, 4, 1, 5, 2} : std::vector<int64_t>{0, 1, 4, 2, 5, 3});
  return make.result(make.reshape(placed, {s[0], channels, s[2] * block, s[3] * block}));
}

LogicalResult Importer::onSpaceToDepth(const GraphNode &node) {
  Val x = in(node, 0);
  const int64_t block = intAttribute(node, "blocksize", 1);
  if ((!x.isGraph() && !x.isConstant()) || x.rank() != 4)
    return error(node, "expects a tensor of samples x channels x height x width");
  std::vector<int64_t> s = x.shape();
  if (block < 1 || s[2] % block != 0 || s[3] % block != 0)
    return error(node, "expects a height and width in blocks of " + Twine(block) + ", found " + Twine(s[2]) + " and " + Twine(s[3]));
  Composition make(*this, node);
  Val apart = make.reshape(x, {s[0], s[1], s[2] / block, block, s[3] / block, block});
  const bool depthFirst = stringAttribute(node, "mode", "DCR") == "DCR";
  Val placed = make.transpose(apart, depthFirst ? std::vector<int64_t>{0, 3, 5, 1, 2, 4} : std::vector<int64_t>{0, 1, 3, 5, 2, 4});
  return make.result(make.reshape(placed, {s[0], s[1] * block * block, s[2] / block, s[3] / block}));
}

LogicalResult Importer::onIsInf(const GraphNode &node) {
  Val x = in(node, 0);
  if (!isFloat(x.type))
    return error(node, "expects floats, found " + Twine(name(x.type)));
  Composition make(*this, node);
  const double infinity = std::numeric_limits<double>::infinity();
  const bool up = intAttribute(node, "detect_positive", 1) != 0, down = intAttribute(node, "detect_negative", 1) != 0;
  Val isUp = make("Equal", {x, make.number(infinity, x)}), isDown = make("Equal", {x, make.number(-infinity, x)});
  if (up && down)
    return make.result(make("Or", {isUp, isDown}));
  if (up || down)
    return make.result(up ? isUp : isDown);
  return make.result(make("And", {isUp, isDown})); // nowhere
}

LogicalResult Importer::onEyeLike(const GraphNode &node) {
  const Val &x = in(node, 0);
  if (x.rank() != 2 || x.view.sampleAxis() >= 0)
    return error(node, "expects a matrix that carries no samples");
  auto type = static_cast<ElementKind>(intAttribute(node, "dtype", static_cast<int64_t>(x.type)));
  if (!byteSize(type))
    return error(node, "makes an element type that is not supported");
  const int64_t height = x.view.size(0), width = x.view.size(1), diagonal = intAttribute(node, "k", 0);
  Val rows = constantOf(ElementKind::I64, makeIota(ElementKind::I64, height, static_cast<double>(diagonal), 1), {height, 1});
  Val columns = constantOf(ElementKind::I64, makeIota(ElementKind::I64, width, 0, 1), {1, width});
  Composition make(*this, node);
  Val hit = make("Equal", {rows, columns});
  return make.result(make.cast(hit, type));
}

void Importer::addRegroupOps(OperatorTable &table) {
  table.add({"DepthToSpace"}, 1, 1, "blocksize:i! mode:s=DCR|CRD", &Importer::onDepthToSpace);
  table.add({"SpaceToDepth"}, 1, 1, "blocksize:i! mode:s=DCR|CRD", &Importer::onSpaceToDepth);
  table.add({"IsInf"}, 1, 1, "detect_negative:i detect_positive:i", &Importer::onIsInf);
  table.add({"EyeLike"}, 1, 1, "dtype:i k:i", &Importer::onEyeLike);
}
