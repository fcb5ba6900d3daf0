// Elementwise operators with several operands. Constants are folded; other operands become arith
// and math operations over common axes. For operators with one operand, see UnaryOps.cpp.
#include "Arithmetic.h"
#include "Decomposition.h"
#include "Kernels.h"
#include "Known.h"
#include "Lengths.h"
#include "LoopNest.h"
#include "Losses.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/ADT/StringSwitch.h"

#include <algorithm>
#include <cmath>

using namespace mlir;
using namespace zorse;
using namespace zorse::onnx_import;

static int64_t divInts(int64_t a, int64_t b) {
  return b == 0 ? 0 : b == -1 ? subInts(0, a) : a / b;
}
static int64_t modInts(int64_t a, int64_t b, bool likeC) {
  if (b == 0 || b == -1)
    return 0;
  int64_t r = a % b;
  return !likeC && r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

// --- binary

static LogicalResult importBinary(OpContext &op) {
  return binary(op, op.node.op, op.operand(0), op.operand(1));
}

static LogicalResult importVariadic(OpContext &op) {
  std::string which = op.node.op == "Sum" ? "Add" : op.node.op;
  ImportedValue sum = op.operand(0);
  if (op.node.inputs.size() == 1)
    return op.result(std::move(sum));
  for (size_t i = 1; i < op.node.inputs.size(); ++i) {
    if (failed(binary(op, which, sum, op.operand(i))))
      return failure();
    if (i + 1 < op.node.inputs.size())
      sum = op.result();
  }
  return success();
}

// Broadcasts an operand to the shape of `other`. None if the shapes do not allow it.
static std::optional<ImportedValue> stretched(ImportedValue value, const View &other) {
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

// The kernel of a binary operator on floats. None if the operator is not defined for floats.
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

/// Handles the cases of `binary` that need no arithmetic on elements, or that move scales past it.
/// None if no case applies.
static std::optional<LogicalResult> scaledBinary(OpContext &op, const std::string &which,
                                                 const ImportedValue &a, const ImportedValue &b) {
  // A uniform operand is a scale, or neutral.
  for (int side = 0; side < 2; ++side) {
    const ImportedValue &x = side ? b : a, &c = side ? a : b;
    if (!x.isTensor() || (!c.isConstant() && !c.isKnown()))
      continue;
    auto uniform = uniformNumber(op.state, c);
    if (!uniform)
      continue;
    bool neutral = (which == "Add" && uniform->is(0)) ||
                   (which == "Sub" && uniform->is(0) && !side);
    bool scales = (which == "Mul" && !uniform->is(0)) ||
                  (which == "Div" && !side && !uniform->is(0));
    if (!neutral && !scales)
      continue;
    if (auto value = stretched(x, c.view)) {
      if (Number &scale = value->tensor().scale; scales)
        scale = which == "Mul" ? scale * *uniform : scale / *uniform;
      return op.result(std::move(*value));
    }
  }
  if (which == "Div" && a.isConstant() && uniformValue(op.state, a) == 1.0 && b.scale().is(1))
    if (auto root = b.value().getDefiningOp<math::SqrtOp>()) {
      ImportedValue value = b;
      value.tensor().value = create<math::RsqrtOp>(op.state, root.getOperand());
      if (auto wide = stretched(value, a.view))
        return op.result(std::move(*wide));
    }
  if (which == "Mul" || (which == "Div" && a.isTensor() && b.isTensor())) {
    // Scales of factors are combined into one scale of the product.
    ImportedValue x = a, y = b;
    const Number left = x.takeScale(), right = y.takeScale();
    bool multiplies = which == "Mul";
    if (!multiplies)
      if (auto root = y.value().getDefiningOp<math::SqrtOp>()) {
        y.tensor().value = create<math::RsqrtOp>(op.state, root.getOperand());
        multiplies = true;
      }
    return emitElementwise(
        op, {x, y}, a.type,
        [&](ValueRange v, RankedTensorType) {
          return multiplies ? create<arith::MulFOp>(op.state, v[0], v[1])
                            : create<arith::DivFOp>(op.state, v[0], v[1]);
        },
        which == "Mul" ? left * right : left / right);
  }
  return std::nullopt;
}

/// Whether every row (last axis) of a mask has an entry that is not hidden.
static bool rowsOpen(ImportState &state, const ImportedValue &mask, bool boolean, bool openWhen) {
  if (mask.rank() == 0 || mask.view.elements() == 0)
    return true; // no rows
  auto key = std::make_pair(mask.lazy().get(), mask.view.offset * 2 + openWhen);
  auto cached = state.openCache.find(key);
  if (cached != state.openCache.end())
    return cached->second;
  FactorList factors;
  const FactorList &last = mask.view.dims.back();
  for (size_t i = 0; i + 1 < mask.view.dims.size(); ++i)
    llvm::copy_if(mask.view.dims[i], std::back_inserter(factors),
                  [](const Factor &factor) { return factor.stride != 0; });
  factors.push_back(last.empty() ? Factor{} : last[0]);
  const auto isOpen = [&](int64_t from, int64_t stride, int64_t count, int64_t) {
    if (boolean) {
      std::vector<int64_t> row(count);
      mask.lazy()->readInts(from, stride, count, row.data());
      return llvm::any_of(row, [&](int64_t x) { return (x != 0) == openWhen; });
    }
    std::vector<double> row(count);
    mask.lazy()->readFloats(from, stride, count, row.data());
    return llvm::any_of(row, [](double x) { return x > -1e9; });
  };
  state.keepAlive.push_back(mask.lazy());
  return state.openCache[key] = last.size() > 1 || visitRuns(mask.view.offset, factors,
                                                             isOpen); // a merged last axis is not
                                                                      // that of a mask
}

LogicalResult zorse::onnx_import::binary(OpContext &op, const std::string &which,
                                         const ImportedValue &a, const ImportedValue &b) {
  if (a.isLoss() || b.isLoss())
    return lossBinary(op, which, a, b);
  for (const ImportedValue *x : {&a, &b})
    if (!x->isArray() && !x->isKnown())
      return op.error("expects two tensors");
  if (isFloat(a.type) != isFloat(b.type))
    return op.error("expects operands of one element type, found " + Twine(name(a.type)) + " and " +
                    name(b.type));
  bool isFloats = isFloat(a.type);
  if (a.isConstant() && b.isConstant()) {
    bool fmod = which == "Mod" && op.integer("fmod") != 0;
    std::optional<Kernel> kernel = isFloats ? floatBinary(which, fmod) : intBinary(which, fmod);
    if (!kernel)
      return op.error(Twine("is not supported on ") + (isFloats ? "float" : "integer") +
                      " constants");
    ImportedValue folded = foldElementwise(op.state, {a, b}, a.type, *kernel);
    if (!folded)
      return op.error("expects shapes that broadcast");
    return op.result(std::move(folded));
  }

  if (isFloats)
    if (std::optional<LogicalResult> done = scaledBinary(op, which, a, b))
      return *done;
  if (!isFloats && (which == "Div" || which == "Mod")) {
    auto divisors = constantInts(compressed(op.state, b));
    if (!divisors || !std::all_of(divisors->begin(), divisors->end(),
                                  [](int64_t divisor) { return divisor > 0; }))
      return op.error(
          "divides integers by what is no positive constant; a program must not stop at data");
  }
  // An added mask can hide whole rows.
  ImportedValue x = a, y = b;
  if (isFloats && which == "Add")
    for (ImportedValue *mask : {&x, &y})
      if (mask->isConstant() && !mask->hides)
        mask->hides = !rowsOpen(op.state, *mask, false, true);
  // PyTorch's clamp has no gradient at a bound that is a number, but its maximum shares the
  // gradient with a constant tensor. Exporters write a number as a Clip or with a scalar operand.
  const ImportedValue &constant = a.isConstant() ? a : b;
  const bool isShared = a.isConstant() != b.isConstant() && constant.rank() > 0 &&
                        op.node.op != "Clip" && uniformNumber(op.state, constant);
  return emitElementwise(op, {x, y}, a.type, [&](ValueRange v, RankedTensorType type) -> Value {
    if (isFloats) {
      if (which == "Add")
        return create<arith::AddFOp>(op.state, v[0], v[1]);
      if (which == "Sub")
        return create<arith::SubFOp>(op.state, v[0], v[1]);
      if (which == "Div")
        return create<arith::DivFOp>(op.state, v[0], v[1]);
      if (which == "Max" || which == "Min") {
        Value extremum = which == "Max" ? create<arith::MaximumFOp>(op.state, v[0], v[1])
                                        : create<arith::MinimumFOp>(op.state, v[0], v[1]);
        if (!isShared)
          return extremum;
        Value equal = create<arith::CmpFOp>(op.state, arith::CmpFPredicate::OEQ, v[0], v[1]);
        return create<arith::SelectOp>(
            op.state, equal,
            create<arith::MulFOp>(op.state, create<arith::AddFOp>(op.state, v[0], v[1]),
                                  splat(op.state, 0.5, type)),
            extremum);
      }
    } else {
      if (which == "Add")
        return create<arith::AddIOp>(op.state, v[0], v[1]);
      if (which == "Sub")
        return create<arith::SubIOp>(op.state, v[0], v[1]);
      if (which == "Mul")
        return create<arith::MulIOp>(op.state, v[0], v[1]);
      if (which == "Max")
        return create<arith::MaxSIOp>(op.state, v[0], v[1]);
      if (which == "Min")
        return create<arith::MinSIOp>(op.state, v[0], v[1]);
      if (which == "Div")
        return create<arith::DivSIOp>(op.state, v[0], v[1]);
      if (which == "Mod") {
        Value rest = create<arith::RemSIOp>(op.state, v[0], v[1]);
        if (op.integer("fmod"))
          return rest;
        Value isBelow =
            create<arith::CmpIOp>(op.state, arith::CmpIPredicate::slt, rest,
                                  splat(op.state, 0, cast<RankedTensorType>(rest.getType())));
        return create<arith::SelectOp>(op.state, isBelow,
                                       create<arith::AddIOp>(op.state, rest, v[1]), rest);
      }
    }
    (void)op.error("is not supported on activations of type " + Twine(name(a.type)));
    return {};
  });
}

// --- comparisons, logic, selection

static LogicalResult importCompare(OpContext &op) {
  const ImportedValue &a = op.operand(0), &b = op.operand(1);
  const std::string &which = op.node.op;
  int code = llvm::StringSwitch<int>(which)
                 .Case("Equal", 0)
                 .Case("Less", 1)
                 .Case("LessOrEqual", 2)
                 .Case("Greater", 3)
                 .Default(4);
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
    return op.error("expects operands of one element type");
  if (a.isConstant() && b.isConstant()) {
    Kernel kernel;
    if (isFloat(a.type))
      kernel.floatToInt = [compare](int64_t n, const double *const *x, int64_t *to) {
        for (int64_t i = 0; i < n; ++i)
          to[i] = compare(x[0][i], x[1][i]);
      };
    else
      kernel = intKernel2([compare](int64_t x, int64_t y) { return compare(x, y); });
    ImportedValue folded = foldElementwise(op.state, {a, b}, ElementKind::Bool, kernel);
    if (!folded)
      return op.error("expects shapes that broadcast");
    return op.result(std::move(folded));
  }
  return emitElementwise(
      op, {a, b}, ElementKind::Bool, [&](ValueRange v, RankedTensorType) -> Value {
        if (isFloat(a.type)) {
          constexpr arith::CmpFPredicate predicates[] = {
              arith::CmpFPredicate::OEQ, arith::CmpFPredicate::OLT, arith::CmpFPredicate::OLE,
              arith::CmpFPredicate::OGT, arith::CmpFPredicate::OGE};
          return create<arith::CmpFOp>(op.state, predicates[code], v[0], v[1]);
        }
        constexpr arith::CmpIPredicate predicates[] = {
            arith::CmpIPredicate::eq, arith::CmpIPredicate::slt, arith::CmpIPredicate::sle,
            arith::CmpIPredicate::sgt, arith::CmpIPredicate::sge};
        return create<arith::CmpIOp>(op.state, predicates[code], v[0], v[1]);
      });
}

static LogicalResult importLogic(OpContext &op) {
  const ImportedValue &a = op.operand(0), &b = op.operand(1);
  const std::string &which = op.node.op;
  if (isFloat(a.type) || isFloat(b.type))
    return op.error("expects booleans or integers, found " + Twine(name(a.type)) + " and " +
                    name(b.type));
  if (a.isConstant() && b.isConstant()) {
    Kernel kernel = which.find("And") != std::string::npos
                        ? intKernel2([](int64_t x, int64_t y) { return x & y; })
                    : which.find("Xor") != std::string::npos
                        ? intKernel2([](int64_t x, int64_t y) { return x ^ y; })
                        : intKernel2([](int64_t x, int64_t y) { return x | y; });
    ImportedValue folded = foldElementwise(op.state, {a, b}, a.type, kernel);
    if (!folded)
      return op.error("expects shapes that broadcast");
    return op.result(std::move(folded));
  }
  for (int side = 0; side < 2 && a.type == ElementKind::Bool; ++side) {
    const ImportedValue &x = side ? b : a, &c = side ? a : b;
    auto uniform = c.isConstant() ? uniformValue(op.state, c) : std::nullopt;
    if (uniform && (which == "And" ? *uniform != 0 : *uniform == 0))
      if (auto value = stretched(x, c.view))
        return op.result(std::move(*value));
  }
  return emitElementwise(op, {a, b}, a.type, [&](ValueRange v, RankedTensorType) -> Value {
    return which.find("And") != std::string::npos   ? create<arith::AndIOp>(op.state, v[0], v[1])
           : which.find("Xor") != std::string::npos ? create<arith::XOrIOp>(op.state, v[0], v[1])
                                                    : create<arith::OrIOp>(op.state, v[0], v[1]);
  });
}

static LogicalResult importWhere(OpContext &op) {
  ImportedValue condition = op.operand(0), yes = op.operand(1), no = op.operand(2);
  if (condition.isLoss() || yes.isLoss() || no.isLoss())
    return op.error("selects by a sum over samples");
  if (isFloat(condition.type))
    return op.error("expects a boolean condition, found " + Twine(name(condition.type)));
  if (isFloat(yes.type) != isFloat(no.type))
    return op.error("expects operands of one element type");
  if (condition.isConstant()) {
    if (auto uniform = uniformValue(op.state, condition)) {
      ImportedValue chosen = *uniform != 0 ? yes : no;
      const ImportedValue &other = *uniform != 0 ? no : yes;
      if (auto wide = stretched(chosen, condition.view); wide)
        if (auto wider = stretched(*wide, other.view))
          return op.result(std::move(*wider));
    }
    if (yes.isConstant() && no.isConstant()) {
      Kernel kernel;
      kernel.select = true;
      ImportedValue folded = foldElementwise(op.state, {condition, yes, no}, yes.type, kernel);
      if (!folded)
        return op.error("expects shapes that broadcast");
      return op.result(std::move(folded));
    }
  }
  // A mask selects visible entries: the hiding constant is the second choice.
  auto hiding = [&](const ImportedValue &value) {
    auto uniform = value.isConstant() && isFloat(value.type) ? uniformValue(op.state, value)
                                                             : std::nullopt;
    return uniform && *uniform <= -1e9;
  };
  if (hiding(yes) && condition.isConstant()) {
    condition = foldElementwise(op.state, {condition}, ElementKind::Bool,
                                intKernel1([](int64_t x) { return int64_t(x == 0); }));
    std::swap(yes, no);
  }
  bool hides = false;
  if (hiding(no))
    hides = !condition.isConstant() || !rowsOpen(op.state, condition, true, true);
  else if (hiding(yes))
    hides = true;
  if (failed(
          emitElementwise(op, {condition, yes, no}, yes.type, [&](ValueRange v, RankedTensorType) {
            return create<arith::SelectOp>(op.state, v[0], v[1], v[2]);
          })))
    return failure();
  op.result().hides |= hides;
  return success();
}

static LogicalResult importClip(OpContext &op) {
  ImportedValue x = op.operand(0);
  if (x.isLoss())
    return notAffine(op, "clips");
  for (size_t i = 1; i <= 2; ++i)
    if (op.has(i)) {
      if (failed(binary(op, i == 1 ? "Max" : "Min", x, op.operand(i))))
        return failure();
      x = op.result();
    }
  return op.result(std::move(x));
}

/// Probabilities are NaN only in rows where all scores are -inf.
static LogicalResult importIsNaN(OpContext &op) {
  const ImportedValue &x = op.operand(0);
  if (!isFloat(x.type))
    return op.error("is not defined for " + Twine(name(x.type)));
  if (x.isConstant()) {
    Kernel kernel;
    kernel.floatToInt = [](int64_t n, const double *const *values, int64_t *to) {
      for (int64_t i = 0; i < n; ++i)
        to[i] = std::isnan(values[0][i]);
    };
    return op.result(foldElementwise(op.state, {x}, ElementKind::Bool, kernel));
  }
  if (!x.isTensor() || !isFloat(x.type))
    return op.error("expects floats");
  if (x.value().getDefiningOp<SoftmaxOp>() && !x.hides) {
    return op.result(fillOver(ElementKind::Bool, 0, x.view));
  }
  return emitElementwise(op, {x}, ElementKind::Bool, [&](ValueRange v, RankedTensorType) {
    return create<arith::CmpFOp>(op.state, arith::CmpFPredicate::UNO, v[0], v[0]);
  });
}

static LogicalResult importPow(OpContext &op) {
  ImportedValue x = op.operand(0), y = op.operand(1);
  if (x.isConstant() && y.isConstant()) {
    y = castTo(op.state, y, x.type);
    if (!y)
      return op.error("expects an exponent that has elements");
    Kernel kernel =
        isFloat(x.type)
            ? floatKernel2([](double a, double b) { return std::pow(a, b); })
            : intKernel2([](int64_t a, int64_t b) {
                return truncateToInt(std::pow(static_cast<double>(a), static_cast<double>(b)));
              });
    ImportedValue folded = foldElementwise(op.state, {x, y}, x.type, kernel);
    if (!folded)
      return op.error("expects shapes that broadcast");
    return op.result(std::move(folded));
  }
  if (!isFloat(x.type))
    return op.error("is supported on floats only");
  auto exponent = uniformValue(op.state, y);
  if (exponent && x.isTensor()) {
    if (*exponent == 1.0)
      return op.result(std::move(x));
    if (*exponent == 2.0 || *exponent == 3.0) {
      const Number scale = x.takeScale();
      return emitElementwise(
          op, {x}, x.type,
          [&](ValueRange v, RankedTensorType) {
            Value square = create<arith::MulFOp>(op.state, v[0], v[0]);
            return *exponent == 2.0 ? square : create<arith::MulFOp>(op.state, square, v[0]);
          },
          *exponent == 2.0 ? scale * scale : scale * scale * scale);
    }
    if (*exponent == 0.5 || *exponent == -0.5)
      return emitElementwise(op, {x}, x.type, [&](ValueRange v, RankedTensorType) -> Value {
        return *exponent == 0.5 ? create<math::SqrtOp>(op.state, v[0])
                                : create<math::RsqrtOp>(op.state, v[0]);
      });
    if (*exponent == -1.0)
      return emitElementwise(op, {x}, x.type, [&](ValueRange v, RankedTensorType type) -> Value {
        if (auto root = v[0].getDefiningOp<math::SqrtOp>())
          return create<math::RsqrtOp>(op.state, root.getOperand());
        return create<arith::DivFOp>(op.state, splat(op.state, 1, type), v[0]);
      });
  }
  y = castTo(op.state, y, x.type);
  if (!y)
    return op.error("expects an exponent that has elements");
  return emitElementwise(op, {x, y}, x.type, [&](ValueRange v, RankedTensorType) {
    return create<math::PowFOp>(op.state, v[0], v[1]);
  });
}

// Applies the dropout to ones and multiplies the constant by the result. Each sample has a separate
// mask if the constant has samples; otherwise all share one.
LogicalResult zorse::onnx_import::dropConstant(OpContext &op, const ImportedValue &x, double ratio,
                                               int64_t rngId) {
  const auto samples = llvm::find_if(
      x.view.dims, [](const FactorList &dim) { return dim.size() == 1 && dim[0].sample; });
  const bool perSample = samples != x.view.dims.end();
  const auto axis = perSample ? samples - x.view.dims.begin() : 0;
  if (countSampleFactors(x.view) > (perSample ? 1 : 0))
    return op.error("drops elements of a constant with samples in a part of an axis; drop elements "
                    "of a value with samples as an axis");
  // Samples are the first dimension of the mask, whichever axis of the constant they are.
  std::vector<int64_t> shape = x.shape();
  if (perSample)
    std::rotate(shape.begin(), shape.begin() + axis, shape.begin() + axis + 1);
  std::vector<int64_t> type = shape;
  if (perSample)
    type[0] = ShapedType::kDynamic;
  Value ones = splat(op.state, 1, RankedTensorType::get(type, elementType(op.state, x.type)));
  Value kept = create<DropoutOp>(op.state, ones, ratio, rngId);
  ImportedValue mask = wrap(kept, x.type, shape);
  if (perSample)
    std::rotate(mask.view.dims.begin(), mask.view.dims.begin() + 1,
                mask.view.dims.begin() + axis + 1);
  Decomposition make(op);
  return make.result(make("Mul", {x, mask}));
}

static LogicalResult importDropout(OpContext &op) {
  const ImportedValue &x = op.operand(0);
  double ratio = 0.5;
  if (op.has(1)) {
    auto given = uniformValue(op.state, op.operand(1));
    if (!given)
      return op.error("expects a constant ratio");
    ratio = *given;
  }
  bool training = false;
  if (op.has(2)) {
    auto given = uniformValue(op.state, op.operand(2));
    if (!given)
      return op.error("expects a constant training_mode");
    training = *given != 0;
  }
  if (op.node.outputs.size() > 1 && op.node.outputs[1] >= 0)
    op.set(1, fillOver(ElementKind::Bool, 1, x.view));
  if (!training && ratio > 0)
    ++op.state.inertDropouts;
  if (training && ratio != 0 && (x.isLoss() || x.isKnown()))
    return notAffine(op, "drops elements of");
  if (!training || ratio == 0)
    return importIdentity(op);
  if (!(ratio > 0 && ratio < 1))
    return op.error("expects a ratio in [0, 1), found " + Twine(std::to_string(ratio)));
  if (op.isUsed(1))
    return op.error("yields its mask, which is not supported; expects the result alone to be read");
  if (x.isConstant())
    return dropConstant(op, x, ratio, op.state.dropouts++);
  ImportedValue scaled = x;
  Number scale = scaled.takeScale();
  int64_t rngId = op.state.dropouts++;
  return emitElementwise(
      op, {scaled}, x.type,
      [&](ValueRange v, RankedTensorType) {
        return create<DropoutOp>(op.state, v[0], ratio, rngId);
      },
      std::move(scale));
}

void zorse::onnx_import::registerElementwiseOps(OperatorRegistry &registry) {
  registry.add({
      {{"Add", "Sub", "Mul", "Div"}, 2, 2, {}, importBinary},
      {{"Mod"}, 2, 2, {integer("fmod", 0)}, importBinary},
      {{"Sum", "Max", "Min"}, 1, kAny, {}, importVariadic},
      {{"Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"}, 2, 2, {}, importCompare},
      {{"And", "Or", "Xor", "BitwiseAnd", "BitwiseOr", "BitwiseXor"}, 2, 2, {}, importLogic},
      {{"Where"}, 3, 3, {}, importWhere},
      {{"Clip"}, 1, 3, {}, importClip},
      {{"IsNaN"}, 1, 1, {}, importIsNaN},
      {{"Pow"}, 2, 2, {}, importPow},
      // Random numbers are a function of --seed, step and element; the exporter's seed has no
      // effect.
      {{"Dropout"}, 1, 3, {ignored(integer("seed"))}, importDropout},
  });
}
