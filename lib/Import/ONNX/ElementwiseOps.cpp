// Elementwise operators of several operands: folded on constants, otherwise arith and math over common axes. Those of one are in UnaryOps.cpp.
#include "Composition.h"
#include "Importer.h"
#include "Kernels.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/ADT/StringSwitch.h"

#include <algorithm>
#include <cmath>

using namespace mlir;
using namespace zorse;
using namespace zorse::onnx_import;

static int64_t divInts(int64_t a, int64_t b) { return b == 0 ? 0 : b == -1 ? subInts(0, a) : a / b; }
static int64_t modInts(int64_t a, int64_t b, bool likeC) {
  if (b == 0 || b == -1)
    return 0;
  int64_t r = a % b;
  return !likeC && r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

// --- binary

LogicalResult Importer::onBinary(const GraphNode &node) { return binary(node, node.op, in(node, 0), in(node, 1)); }

LogicalResult Importer::onVariadic(const GraphNode &node) {
  std::string op = node.op == "Sum" ? "Add" : node.op;
  Val sum = in(node, 0);
  if (node.inputs.size() == 1)
    return out(node, 0, std::move(sum)), success();
  for (size_t i = 1; i < node.inputs.size(); ++i) {
    if (failed(binary(node, op, sum, in(node, i))))
      return failure();
    if (i + 1 < node.inputs.size())
      sum = values[node.outputs[0]];
  }
  return success();
}

// What broadcasting to `other` does to an operand that is otherwise unchanged.
static std::optional<Val> stretched(Val value, const View &other) {
  while (value.rank() < other.rank())
    value.view.dims.insert(value.view.dims.begin(), FactorList{});
  int64_t lead = value.rank() - other.rank();
  for (int64_t i = 0; i < other.rank(); ++i) {
    int64_t size = value.view.size(lead + i);
    if (other.size(i) == size || other.size(i) == 1)
      continue;
    if (size != 1)
      return std::nullopt;
    for (const Factor &factor : other.dims[i])
      value.view.dims[lead + i].push_back(Factor{factor.size, 0, factor.sample});
    coalesce(value.view.dims[lead + i]);
  }
  return value;
}

// What two numbers make, by the name of the operator; none if it is not known for them.
static std::optional<Kernel> floatBinary(const std::string &op, bool fmod) {
  if (op == "Add")
    return floatKernel2([](double x, double y) { return x + y; });
  if (op == "Sub")
    return floatKernel2([](double x, double y) { return x - y; });
  if (op == "Mul")
    return floatKernel2([](double x, double y) { return x * y; });
  if (op == "Div")
    return floatKernel2([](double x, double y) { return x / y; });
  if (op == "Max")
    return floatKernel2([](double x, double y) { return std::isnan(x) || x > y ? x : y; });
  if (op == "Min")
    return floatKernel2([](double x, double y) { return std::isnan(x) || x < y ? x : y; });
  if (op == "Mod")
    return floatKernel2([fmod](double x, double y) {
      double r = std::fmod(x, y);
      return !fmod && r != 0 && (r < 0) != (y < 0) ? r + y : r;
    });
  return std::nullopt;
}

static std::optional<Kernel> intBinary(const std::string &op, bool fmod) {
  if (op == "Add")
    return intKernel2(addInts);
  if (op == "Sub")
    return intKernel2(subInts);
  if (op == "Mul")
    return intKernel2(mulInts);
  if (op == "Div")
    return intKernel2(divInts);
  if (op == "Max")
    return intKernel2([](int64_t x, int64_t y) { return std::max(x, y); });
  if (op == "Min")
    return intKernel2([](int64_t x, int64_t y) { return std::min(x, y); });
  if (op == "Mod")
    return intKernel2([fmod](int64_t x, int64_t y) { return modInts(x, y, fmod); });
  return std::nullopt;
}

std::optional<LogicalResult> Importer::scaledBinary(const GraphNode &node, const std::string &op, const Val &a, const Val &b) {
  // A uniform number is a scale, or nothing at all.
  for (int side = 0; side < 2; ++side) {
    const Val &x = side ? b : a, &c = side ? a : b;
    if (!x.isGraph() || (!c.isConstant() && !c.isKnown()))
      continue;
    auto uniform = uniformNumber(c);
    if (!uniform)
      continue;
    bool neutral = (op == "Add" && uniform->is(0)) || (op == "Sub" && uniform->is(0) && !side);
    bool scales = (op == "Mul" && !uniform->is(0)) || (op == "Div" && !side && !uniform->is(0));
    if (!neutral && !scales)
      continue;
    if (auto value = stretched(x, c.view)) {
      if (scales)
        value->scale = op == "Mul" ? value->scale * *uniform : value->scale / *uniform;
      return out(node, 0, std::move(*value)), std::optional<LogicalResult>(success());
    }
  }
  if (op == "Div" && a.isConstant() && uniformValue(a) == 1.0 && b.scale.is(1))
    if (auto root = b.value.getDefiningOp<math::SqrtOp>()) {
      Val value = b;
      value.value = create<math::RsqrtOp>(root.getOperand());
      if (auto wide = stretched(value, a.view))
        return out(node, 0, std::move(*wide)), std::optional<LogicalResult>(success());
    }
  if (op == "Mul" || (op == "Div" && a.isGraph() && b.isGraph())) {
    // Scales of factors are one scale of the product.
    Val x = a, y = b;
    Number scale = op == "Mul" ? x.scale * y.scale : x.scale / y.scale;
    if (!a.isGraph())
      scale = y.scale;
    if (!b.isGraph())
      scale = x.scale;
    x.scale = y.scale = 1.0;
    bool rsqrt = false;
    if (op == "Div")
      if (auto root = y.value.getDefiningOp<math::SqrtOp>()) {
        y.value = create<math::RsqrtOp>(root.getOperand());
        rsqrt = true;
      }
    if (failed(emitElementwise(node, {x, y}, a.type, [&](ValueRange v, RankedTensorType) {
          return op == "Mul" || rsqrt ? create<arith::MulFOp>(v[0], v[1]) : create<arith::DivFOp>(v[0], v[1]);
        })))
      return std::optional<LogicalResult>(failure());
    values[node.outputs[0]].scale = scale;
    return std::optional<LogicalResult>(success());
  }
  return std::nullopt;
}

LogicalResult Importer::binary(const GraphNode &node, const std::string &op, const Val &a, const Val &b) {
  if (a.kind == Val::Kind::Loss || b.kind == Val::Kind::Loss)
    return lossBinary(node, op, a, b);
  const auto isTensor = [](const Val &x) { return x.isConstant() || x.isKnown() || x.isGraph(); };
  if (!isTensor(a) || !isTensor(b))
    return error(node, "expects two tensors");
  if (isFloat(a.type) != isFloat(b.type))
    return error(node, "expects operands of one element type, found " + Twine(name(a.type)) + " and " + name(b.type));
  bool isFloats = isFloat(a.type);
  if (a.isConstant() && b.isConstant()) {
    bool fmod = op == "Mod" && intAttribute(node, "fmod", 0) != 0;
    std::optional<Kernel> kernel = isFloats ? floatBinary(op, fmod) : intBinary(op, fmod);
    if (!kernel)
      return error(node, Twine("is not supported on ") + (isFloats ? "float" : "integer") + " constants");
    Val folded = foldElementwise({a, b}, a.type, *kernel);
    if (!folded)
      return error(node, "expects shapes that broadcast");
    return out(node, 0, std::move(folded)), success();
  }

  if (isFloats)
    if (std::optional<LogicalResult> done = scaledBinary(node, op, a, b))
      return *done;
  if (!isFloats && (op == "Div" || op == "Mod")) {
    auto divisors = constantInts(compressed(b));
    if (!divisors || !std::all_of(divisors->begin(), divisors->end(), [](int64_t divisor) { return divisor > 0; }))
      return error(node, "divides integers by what is no positive constant; a program must not stop at data");
  }
  // A mask that is added can hide whole rows.
  Val x = a, y = b;
  if (isFloats && op == "Add")
    for (Val *mask : {&x, &y})
      if (mask->isConstant() && !mask->hides)
        mask->hides = !rowsOpen(*mask, false, true);
  // PyTorch's clamp has no gradient at a bound that is a number; its maximum shares the gradient with a constant tensor. Exporters write a number as
  // a Clip or with a scalar operand.
  const Val &constant = a.isConstant() ? a : b;
  const bool isShared = a.isConstant() != b.isConstant() && constant.rank() > 0 && node.op != "Clip" && uniformNumber(constant);
  return emitElementwise(node, {x, y}, a.type, [&](ValueRange v, RankedTensorType type) -> Value {
    if (isFloats) {
      if (op == "Add")
        return create<arith::AddFOp>(v[0], v[1]);
      if (op == "Sub")
        return create<arith::SubFOp>(v[0], v[1]);
      if (op == "Div")
        return create<arith::DivFOp>(v[0], v[1]);
      if (op == "Max" || op == "Min") {
        Value extremum = op == "Max" ? create<arith::MaximumFOp>(v[0], v[1]) : create<arith::MinimumFOp>(v[0], v[1]);
        if (!isShared)
          return extremum;
        Value equal = create<arith::CmpFOp>(arith::CmpFPredicate::OEQ, v[0], v[1]);
        return create<arith::SelectOp>(equal, create<arith::MulFOp>(create<arith::AddFOp>(v[0], v[1]), splat(0.5, type)), extremum);
      }
    } else {
      if (op == "Add")
        return create<arith::AddIOp>(v[0], v[1]);
      if (op == "Sub")
        return create<arith::SubIOp>(v[0], v[1]);
      if (op == "Mul")
        return create<arith::MulIOp>(v[0], v[1]);
      if (op == "Max")
        return create<arith::MaxSIOp>(v[0], v[1]);
      if (op == "Min")
        return create<arith::MinSIOp>(v[0], v[1]);
      if (op == "Div")
        return create<arith::DivSIOp>(v[0], v[1]);
      if (op == "Mod") {
        Value rest = create<arith::RemSIOp>(v[0], v[1]);
        if (intAttribute(node, "fmod", 0))
          return rest;
        Value isBelow = create<arith::CmpIOp>(arith::CmpIPredicate::slt, rest, splat(0, cast<RankedTensorType>(rest.getType())));
        return create<arith::SelectOp>(isBelow, create<arith::AddIOp>(rest, v[1]), rest);
      }
    }
    (void)error(node, "is not supported on activations of type " + Twine(name(a.type)));
    return {};
  });
}

// Whether every row (last axis) of a mask has an entry that is not hidden.
bool Importer::rowsOpen(const Val &mask, bool boolean, bool openWhen) {
  if (mask.rank() == 0)
    return true;
  if (mask.view.dims.empty() || mask.view.elements() == 0)
    return true; // no rows
  auto key = std::make_pair(mask.lazy.get(), mask.view.offset * 2 + openWhen);
  auto cached = openCache.find(key);
  if (cached != openCache.end())
    return cached->second;
  FactorList outer, inner = mask.view.dims.back();
  for (size_t i = 0; i + 1 < mask.view.dims.size(); ++i)
    for (const Factor &factor : mask.view.dims[i])
      if (factor.stride != 0)
        outer.push_back(factor);
  std::vector<int64_t> index(outer.size(), 0);
  bool all = true;
  for (bool more = true; more && all;) {
    int64_t at = mask.view.offset;
    for (size_t i = 0; i < outer.size(); ++i)
      at += index[i] * outer[i].stride;
    bool open = false;
    int64_t count = inner.size() == 1 ? inner[0].size : 1, stride = inner.size() == 1 ? inner[0].stride : 0;
    if (inner.size() > 1) {
      open = true; // merged last axis: not a mask
    } else if (boolean) {
      std::vector<int64_t> row(count);
      mask.lazy->readInts(at, stride, count, row.data());
      open = std::any_of(row.begin(), row.end(), [&](int64_t x) { return (x != 0) == openWhen; });
    } else {
      std::vector<double> row(count);
      mask.lazy->readFloats(at, stride, count, row.data());
      open = std::any_of(row.begin(), row.end(), [](double x) { return x > -1e9; });
    }
    all = open;
    size_t axis = outer.size();
    while (axis > 0 && ++index[axis - 1] == outer[axis - 1].size)
      index[--axis] = 0;
    more = axis > 0;
  }
  keepAlive.push_back(mask.lazy);
  return openCache[key] = all;
}

// --- comparisons, logic, selection

LogicalResult Importer::onCompare(const GraphNode &node) {
  const Val &a = in(node, 0), &b = in(node, 1);
  const std::string &op = node.op;
  int code = llvm::StringSwitch<int>(op).Case("Equal", 0).Case("Less", 1).Case("LessOrEqual", 2).Case("Greater", 3).Default(4);
  auto compare = [code](auto x, auto y) -> int64_t {
    switch (code) {
    case 0:
      return x == y;
    case 1:
      return x < y;
    case 2:
      return x <= y;
    case 3:
      return x > y;
    default:
      return x >= y;
    }
  };
  if (isFloat(a.type) != isFloat(b.type))
    return error(node, "expects operands of one element type");
  if (a.isConstant() && b.isConstant()) {
    Kernel kernel;
    if (isFloat(a.type))
      kernel.floatToInt = [compare](int64_t n, const double *const *x, int64_t *to) {
        for (int64_t i = 0; i < n; ++i)
          to[i] = compare(x[0][i], x[1][i]);
      };
    else
      kernel = intKernel2([compare](int64_t x, int64_t y) { return compare(x, y); });
    Val folded = foldElementwise({a, b}, ElementKind::Bool, kernel);
    if (!folded)
      return error(node, "expects shapes that broadcast");
    return out(node, 0, std::move(folded)), success();
  }
  return emitElementwise(node, {a, b}, ElementKind::Bool, [&](ValueRange v, RankedTensorType) -> Value {
    if (isFloat(a.type)) {
      constexpr arith::CmpFPredicate predicates[] = {arith::CmpFPredicate::OEQ, arith::CmpFPredicate::OLT, arith::CmpFPredicate::OLE,
                                                     arith::CmpFPredicate::OGT, arith::CmpFPredicate::OGE};
      return create<arith::CmpFOp>(predicates[code], v[0], v[1]);
    }
    constexpr arith::CmpIPredicate predicates[] = {arith::CmpIPredicate::eq, arith::CmpIPredicate::slt, arith::CmpIPredicate::sle,
                                                   arith::CmpIPredicate::sgt, arith::CmpIPredicate::sge};
    return create<arith::CmpIOp>(predicates[code], v[0], v[1]);
  });
}

LogicalResult Importer::onLogic(const GraphNode &node) {
  const Val &a = in(node, 0), &b = in(node, 1);
  const std::string &op = node.op;
  if (isFloat(a.type) || isFloat(b.type))
    return error(node, "expects booleans or integers, found " + Twine(name(a.type)) + " and " + name(b.type));
  if (a.isConstant() && b.isConstant()) {
    Kernel kernel = op.find("And") != std::string::npos   ? intKernel2([](int64_t x, int64_t y) { return x & y; })
                    : op.find("Xor") != std::string::npos ? intKernel2([](int64_t x, int64_t y) { return x ^ y; })
                                                          : intKernel2([](int64_t x, int64_t y) { return x | y; });
    Val folded = foldElementwise({a, b}, a.type, kernel);
    if (!folded)
      return error(node, "expects shapes that broadcast");
    return out(node, 0, std::move(folded)), success();
  }
  for (int side = 0; side < 2 && a.type == ElementKind::Bool; ++side) {
    const Val &x = side ? b : a, &c = side ? a : b;
    auto uniform = c.isConstant() ? uniformValue(c) : std::nullopt;
    if (uniform && (op == "And" ? *uniform != 0 : *uniform == 0))
      if (auto value = stretched(x, c.view))
        return out(node, 0, std::move(*value)), success();
  }
  return emitElementwise(node, {a, b}, a.type, [&](ValueRange v, RankedTensorType) -> Value {
    return op.find("And") != std::string::npos   ? create<arith::AndIOp>(v[0], v[1])
           : op.find("Xor") != std::string::npos ? create<arith::XOrIOp>(v[0], v[1])
                                                 : create<arith::OrIOp>(v[0], v[1]);
  });
}

LogicalResult Importer::onWhere(const GraphNode &node) {
  Val condition = in(node, 0), yes = in(node, 1), no = in(node, 2);
  if (condition.kind == Val::Kind::Loss || yes.kind == Val::Kind::Loss || no.kind == Val::Kind::Loss)
    return error(node, "selects by a sum over samples");
  if (isFloat(condition.type))
    return error(node, "expects a boolean condition, found " + Twine(name(condition.type)));
  if (isFloat(yes.type) != isFloat(no.type))
    return error(node, "expects operands of one element type");
  if (condition.isConstant()) {
    if (auto uniform = uniformValue(condition)) {
      Val chosen = *uniform != 0 ? yes : no;
      const Val &other = *uniform != 0 ? no : yes;
      if (auto wide = stretched(chosen, condition.view); wide && other.kind != Val::Kind::Sequence)
        if (auto wider = stretched(*wide, other.view))
          return out(node, 0, std::move(*wider)), success();
    }
    if (yes.isConstant() && no.isConstant()) {
      Kernel kernel;
      kernel.select = true;
      Val folded = foldElementwise({condition, yes, no}, yes.type, kernel);
      if (!folded)
        return error(node, "expects shapes that broadcast");
      return out(node, 0, std::move(folded)), success();
    }
  }
  // A mask says what is visible: the hiding constant stands second.
  auto hiding = [&](const Val &value) {
    auto uniform = value.isConstant() && isFloat(value.type) ? uniformValue(value) : std::nullopt;
    return uniform && *uniform <= -1e9;
  };
  if (hiding(yes) && condition.isConstant()) {
    condition = foldElementwise({condition}, ElementKind::Bool, intKernel1([](int64_t x) { return int64_t(x == 0); }));
    std::swap(yes, no);
  }
  bool hides = false;
  if (hiding(no))
    hides = !condition.isConstant() || !rowsOpen(condition, true, true);
  else if (hiding(yes))
    hides = true;
  if (failed(emitElementwise(node, {condition, yes, no}, yes.type,
                             [&](ValueRange v, RankedTensorType) { return create<arith::SelectOp>(v[0], v[1], v[2]); })))
    return failure();
  values[node.outputs[0]].hides |= hides;
  return success();
}

LogicalResult Importer::onClip(const GraphNode &node) {
  Val x = in(node, 0);
  if (x.kind == Val::Kind::Loss)
    return notAffine(node, "clips");
  for (size_t i = 1; i <= 2; ++i)
    if (has(node, i)) {
      if (failed(binary(node, i == 1 ? "Max" : "Min", x, in(node, i))))
        return failure();
      x = values[node.outputs[0]];
    }
  return out(node, 0, std::move(x)), success();
}

// Probabilities are NaN only where a row of scores is all -inf.
LogicalResult Importer::onIsNaN(const GraphNode &node) {
  const Val &x = in(node, 0);
  if (!isFloat(x.type))
    return error(node, "is not defined for " + Twine(name(x.type)));
  if (x.isConstant()) {
    Kernel kernel;
    kernel.floatToInt = [](int64_t n, const double *const *values, int64_t *to) {
      for (int64_t i = 0; i < n; ++i)
        to[i] = std::isnan(values[0][i]);
    };
    return out(node, 0, foldElementwise({x}, ElementKind::Bool, kernel)), success();
  }
  if (!x.isGraph() || !isFloat(x.type))
    return error(node, "expects floats");
  if (x.value.getDefiningOp<SoftmaxOp>() && !x.hides) {
    return out(node, 0, fillOver(ElementKind::Bool, 0, x.view)), success();
  }
  return emitElementwise(node, {x}, ElementKind::Bool,
                         [&](ValueRange v, RankedTensorType) { return create<arith::CmpFOp>(arith::CmpFPredicate::UNO, v[0], v[0]); });
}

LogicalResult Importer::onPow(const GraphNode &node) {
  Val x = in(node, 0), y = in(node, 1);
  if (x.isConstant() && y.isConstant()) {
    y = castTo(y, x.type);
    if (!y)
      return error(node, "expects an exponent that has elements");
    Kernel kernel = isFloat(x.type)
                        ? floatKernel2([](double a, double b) { return std::pow(a, b); })
                        : intKernel2([](int64_t a, int64_t b) { return truncateToInt(std::pow(static_cast<double>(a), static_cast<double>(b))); });
    Val folded = foldElementwise({x, y}, x.type, kernel);
    if (!folded)
      return error(node, "expects shapes that broadcast");
    return out(node, 0, std::move(folded)), success();
  }
  if (!isFloat(x.type))
    return error(node, "is supported on floats only");
  auto exponent = uniformValue(y);
  if (exponent && x.isGraph()) {
    if (*exponent == 1.0)
      return out(node, 0, std::move(x)), success();
    if (*exponent == 2.0 || *exponent == 3.0) {
      const Number scale = *exponent == 2.0 ? x.scale * x.scale : x.scale * x.scale * x.scale;
      x.scale = 1.0;
      if (failed(emitElementwise(node, {x}, x.type, [&](ValueRange v, RankedTensorType) {
            Value square = create<arith::MulFOp>(v[0], v[0]);
            return *exponent == 2.0 ? square : create<arith::MulFOp>(square, v[0]);
          })))
        return failure();
      values[node.outputs[0]].scale = scale;
      return success();
    }
    if (*exponent == 0.5 || *exponent == -0.5)
      return emitElementwise(node, {x}, x.type, [&](ValueRange v, RankedTensorType) -> Value {
        return *exponent == 0.5 ? create<math::SqrtOp>(v[0]) : create<math::RsqrtOp>(v[0]);
      });
    if (*exponent == -1.0)
      return emitElementwise(node, {x}, x.type, [&](ValueRange v, RankedTensorType type) -> Value {
        if (auto root = v[0].getDefiningOp<math::SqrtOp>())
          return create<math::RsqrtOp>(root.getOperand());
        return create<arith::DivFOp>(splat(1, type), v[0]);
      });
  }
  y = castTo(y, x.type);
  if (!y)
    return error(node, "expects an exponent that has elements");
  return emitElementwise(node, {x, y}, x.type, [&](ValueRange v, RankedTensorType) { return create<math::PowFOp>(v[0], v[1]); });
}

// Ones are dropped, and the constant is multiplied with what is left: one mask for every sample, or one for all where it has no samples.
LogicalResult Importer::dropConstant(const GraphNode &node, const Val &x, double ratio, int64_t instance) {
  const auto samples = llvm::find_if(x.view.dims, [](const FactorList &dim) { return dim.size() == 1 && dim[0].sample; });
  const bool perSample = samples != x.view.dims.end();
  const auto axis = perSample ? samples - x.view.dims.begin() : 0;
  if (countSampleFactors(x.view) > (perSample ? 1 : 0))
    return error(node, "drops elements of a constant whose samples are part of an axis; drop them of a value whose samples are an axis");
  // The mask has the samples first, whichever axis of the constant they are.
  std::vector<int64_t> shape = x.shape();
  if (perSample)
    std::rotate(shape.begin(), shape.begin() + axis, shape.begin() + axis + 1);
  std::vector<int64_t> type = shape;
  if (perSample)
    type[0] = ShapedType::kDynamic;
  Value ones = splat(1, RankedTensorType::get(type, elementType(x.type)));
  Value kept = create<DropoutOp>(ones, builder.getF64FloatAttr(ratio), builder.getI64IntegerAttr(instance));
  Val mask = wrap(kept, x.type, shape);
  if (perSample)
    std::rotate(mask.view.dims.begin(), mask.view.dims.begin() + 1, mask.view.dims.begin() + axis + 1);
  Composition make(*this, node);
  return make.result(make("Mul", {x, mask}));
}

LogicalResult Importer::onDropout(const GraphNode &node) {
  const Val &x = in(node, 0);
  double ratio = 0.5;
  if (has(node, 1)) {
    auto given = uniformValue(in(node, 1));
    if (!given)
      return error(node, "expects a constant ratio");
    ratio = *given;
  }
  bool training = false;
  if (has(node, 2)) {
    auto given = uniformValue(in(node, 2));
    if (!given)
      return error(node, "expects a constant training_mode");
    training = *given != 0;
  }
  if (node.outputs.size() > 1 && node.outputs[1] >= 0)
    out(node, 1, fillOver(ElementKind::Bool, 1, x.view));
  if (!training && ratio > 0)
    ++inertDropouts;
  if (training && ratio != 0 && (x.kind == Val::Kind::Loss || x.isKnown()))
    return notAffine(node, "drops elements of");
  if (!training || ratio == 0)
    return onIdentity(node);
  if (!(ratio > 0 && ratio < 1))
    return error(node, "expects a ratio in [0, 1), found " + Twine(std::to_string(ratio)));
  if (isUsed(node, 1))
    return error(node, "yields its mask, which is not supported; expects the result alone to be read");
  if (x.isConstant())
    return dropConstant(node, x, ratio, dropouts++);
  Val scaled = x;
  const Number scale = scaled.scale;
  scaled.scale = 1.0;
  int64_t instance = dropouts++;
  if (failed(emitElementwise(node, {scaled}, x.type, [&](ValueRange v, RankedTensorType) {
        return create<DropoutOp>(v[0], builder.getF64FloatAttr(ratio), builder.getI64IntegerAttr(instance));
      })))
    return failure();
  values[node.outputs[0]].scale = scale;
  return success();
}

void Importer::addElementwiseOps(OperatorTable &table) {
  table.add({"Add", "Sub", "Mul", "Div"}, 2, 2, "", &Importer::onBinary);
  table.add({"Mod"}, 2, 2, "fmod:i", &Importer::onBinary);
  table.add({"Sum", "Max", "Min"}, 1, OperatorRule::kAny, "", &Importer::onVariadic);
  table.add({"Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"}, 2, 2, "", &Importer::onCompare);
  table.add({"And", "Or", "Xor", "BitwiseAnd", "BitwiseOr", "BitwiseXor"}, 2, 2, "", &Importer::onLogic);
  table.add({"Where"}, 3, 3, "", &Importer::onWhere);
  table.add({"Clip"}, 1, 3, "", &Importer::onClip);
  table.add({"IsNaN"}, 1, 1, "", &Importer::onIsNaN);
  table.add({"Pow"}, 2, 2, "", &Importer::onPow);
  // Random numbers here are a function of --seed, step and element, whatever an exporter's generator would have drawn.
  table.add({"Dropout"}, 1, 3, "seed:i~", &Importer::onDropout);
}
