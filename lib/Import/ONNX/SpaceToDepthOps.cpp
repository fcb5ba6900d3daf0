// Imports DepthToSpace, SpaceToDepth and Col2Im, which move blocks between channels and positions,
// and IsInf and EyeLike.
#include "Decomposition.h"

#include <cmath>
#include <limits>

using namespace mlir;
using namespace zorse;
using namespace zorse::onnx_import;

static LogicalResult importDepthToSpace(OpContext &op) {
  ImportedValue x = op.operand(0);
  const int64_t block = op.integer("blocksize");
  if (!x.isArray() || x.rank() != 4)
    return op.error("expects a tensor of samples x channels x height x width");
  std::vector<int64_t> s = x.shape();
  if (block < 1 || s[1] % (block * block) != 0)
    return op.error("expects channels in blocks of blocksize^2, found " + Twine(s[1]) +
                    " channels and a blocksize of " + Twine(block));
  Decomposition make(op);
  const int64_t channels = s[1] / (block * block);
  const bool depthFirst = op.text("mode") == "DCR";
  ImportedValue apart = depthFirst ? make.reshape(x, {s[0], block, block, channels, s[2], s[3]})
                                   : make.reshape(x, {s[0], channels, block, block, s[2], s[3]});
  ImportedValue placed = make.transpose(apart, depthFirst ? std::vector<int64_t>{0, 3, 4, 1, 5, 2}
                                                          : std::vector<int64_t>{0, 1, 4, 2, 5, 3});
  return make.result(make.reshape(placed, {s[0], channels, s[2] * block, s[3] * block}));
}

static LogicalResult importSpaceToDepth(OpContext &op) {
  ImportedValue x = op.operand(0);
  const int64_t block = op.integer("blocksize");
  if (!x.isArray() || x.rank() != 4)
    return op.error("expects a tensor of samples x channels x height x width");
  std::vector<int64_t> s = x.shape();
  if (block < 1 || s[2] % block != 0 || s[3] % block != 0)
    return op.error("expects a height and width in blocks of " + Twine(block) + ", found " +
                    Twine(s[2]) + " and " + Twine(s[3]));
  Decomposition make(op);
  ImportedValue apart = make.reshape(x, {s[0], s[1], s[2] / block, block, s[3] / block, block});
  const bool depthFirst = op.text("mode") == "DCR";
  ImportedValue placed = make.transpose(apart, depthFirst ? std::vector<int64_t>{0, 3, 5, 1, 2, 4}
                                                          : std::vector<int64_t>{0, 1, 3, 5, 2, 4});
  return make.result(
      make.reshape(placed, {s[0], s[1] * block * block, s[2] / block, s[3] / block}));
}

/// Col2Im (PyTorch fold): moves blocks to their positions and adds where they overlap. A transposed
/// convolution does the additions; its weight selects one element of the block. Blocks that tile
/// the image are only moved.
static LogicalResult importCol2Im(OpContext &op) {
  ImportedValue x = op.operand(0);
  auto image = constantInts(op.operand(1)), block = constantInts(op.operand(2));
  auto strides = *op.integers("strides"), dilations = *op.integers("dilations"),
       pads = *op.integers("pads");
  if (!x.isTensor() || x.rank() != 3 || !image || !block || image->size() != 2 ||
      block->size() != 2 || strides.size() != 2 || dilations.size() != 2 || pads.size() != 4)
    return op.error("expects samples x (channels * block) x blocks, and constant sizes of a "
                    "picture of two dimensions and of its blocks");
  const int64_t samples = x.view.size(0), inside = (*block)[0] * (*block)[1];
  int64_t counts[2], rest[2];
  for (int i = 0; i < 2; ++i) {
    if ((*block)[i] < 1 || (*block)[i] > 1024 || strides[i] < 1 || dilations[i] < 1 ||
        dilations[i] > 1024 || pads[i] < 0 || pads[i + 2] < 0)
      return op.error(
          "has a block, a stride, a dilation or a pad that is out of range in dimension " +
          Twine(i));
    const int64_t room = (*image)[i] + pads[i] + pads[i + 2] - dilations[i] * ((*block)[i] - 1) - 1;
    counts[i] = room < 0 ? 0 : room / strides[i] + 1;
    rest[i] = room - (counts[i] - 1) * strides[i];
  }
  if (x.view.size(1) % inside != 0 || counts[0] * counts[1] != x.view.size(2) ||
      counts[0] * counts[1] == 0)
    return op.error("expects " + Twine(counts[0] * counts[1]) + " blocks of " + Twine(inside) +
                    " elements of each channel, found " + Twine(x.view.size(2)) + " blocks of " +
                    Twine(x.view.size(1)) + " elements");
  Decomposition make(op);
  const int64_t channels = x.view.size(1) / inside;
  const std::vector<int64_t> ones{1, 1}, none{0, 0, 0, 0};
  if (strides == *block && dilations == ones && pads == none && rest[0] == 0 && rest[1] == 0) {
    ImportedValue apart =
        make.reshape(x, {samples, channels, (*block)[0], (*block)[1], counts[0], counts[1]});
    return make.result(make.reshape(make.transpose(apart, {0, 1, 4, 2, 5, 3}),
                                    {samples, channels, (*image)[0], (*image)[1]}));
  }
  ImportedValue rows =
      constantOf(ElementKind::I64, makeIota(ElementKind::I64, inside, 0, 1), {inside, 1});
  ImportedValue picks = make.cast(make("Equal", {rows, make.reshape(rows, {1, inside})}), x.type);
  ImportedValue weight =
      make.reshape(make("Expand", {picks, make.ints({channels, inside, inside})}),
                   {channels * inside, 1, (*block)[0], (*block)[1]});
  return make.result(
      make("ConvTranspose",
           {make.reshape(x, {samples, channels * inside, counts[0], counts[1]}), weight},
           {{"group", channels},
            {"strides", strides},
            {"dilations", dilations},
            {"pads", pads},
            {"output_padding", std::vector<int64_t>{rest[0], rest[1]}}}));
}

static LogicalResult importIsInf(OpContext &op) {
  ImportedValue x = op.operand(0);
  if (!isFloat(x.type))
    return op.error("expects floats, found " + Twine(name(x.type)));
  Decomposition make(op);
  const double infinity = std::numeric_limits<double>::infinity();
  const bool up = op.integer("detect_positive") != 0, down = op.integer("detect_negative") != 0;
  ImportedValue isUp = make("Equal", {x, make.number(infinity, x)}),
                isDown = make("Equal", {x, make.number(-infinity, x)});
  if (up && down)
    return make.result(make("Or", {isUp, isDown}));
  if (up || down)
    return make.result(up ? isUp : isDown);
  return make.result(make("And", {isUp, isDown})); // always false
}

static LogicalResult importEyeLike(OpContext &op) {
  const ImportedValue &x = op.operand(0);
  if (x.rank() != 2 || x.view.sampleAxis() >= 0)
    return op.error("expects a matrix that carries no samples");
  auto type = static_cast<ElementKind>(op.integer("dtype", static_cast<int64_t>(x.type)));
  if (!byteSize(type))
    return op.error("makes an element type that is not supported");
  const int64_t height = x.view.size(0), width = x.view.size(1), diagonal = op.integer("k");
  ImportedValue rows =
      constantOf(ElementKind::I64,
                 makeIota(ElementKind::I64, height, static_cast<double>(diagonal), 1), {height, 1});
  ImportedValue columns =
      constantOf(ElementKind::I64, makeIota(ElementKind::I64, width, 0, 1), {1, width});
  Decomposition make(op);
  ImportedValue hit = make("Equal", {rows, columns});
  return make.result(make.cast(hit, type));
}

void zorse::onnx_import::registerRegroupOps(OperatorRegistry &registry) {
  registry.add({
      {{"DepthToSpace"},
       1,
       1,
       {required(integer("blocksize")), only(text("mode", "DCR"), {"DCR", "CRD"})},
       importDepthToSpace},
      {{"SpaceToDepth"},
       1,
       1,
       {required(integer("blocksize")), only(text("mode", "DCR"), {"DCR", "CRD"})},
       importSpaceToDepth},
      {{"Col2Im"},
       3,
       3,
       {integers("dilations", {1, 1}), integers("pads", {0, 0, 0, 0}), integers("strides", {1, 1})},
       importCol2Im},
      {{"IsInf"},
       1,
       1,
       {integer("detect_negative", 1), integer("detect_positive", 1)},
       importIsInf},
      {{"EyeLike"}, 1, 1, {integer("dtype"), integer("k", 0)}, importEyeLike},
  });
}
