#include "Tolerances.h"

#include "CudaEmitters.h"
#include "Decompose.h"

#include "zorse/Dialect/Zorse/EraseDeadOps.h"
#include "zorse/Dialect/Zorse/SampleOps.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

#include <cmath>
#include <limits>

using namespace mlir;
using namespace zorse;
using namespace zorse::conformance;
using reference::Tensor;

namespace {

/// Error limits of the polynomials, in units of 2^-24 of the result: twice the errors measured for
/// 233,194 arguments from 2^-14 to 80 (1.34, 1.36, 4.54 and 3.95).
constexpr double kExp = 3, kLog = 3, kTanh = 9, kErf = 8;
/// Error limits of GPU instructions, from the PTX ISA: ex2.approx.ftz, with an argument that is
/// also rounded, and a product with rcp.approx.ftz.
constexpr double kExpNearly = 6, kDivNearly = 4;
constexpr double kMinNormal = 0x1p-126;             ///< exp is 0 for smaller results
constexpr const char *kGiven = "conformance.given"; ///< marks roundings of the function itself,
                                                    ///< which the reference also performs

constexpr double kInfinite = std::numeric_limits<double>::infinity();

Type elementOf(Value value) { return getElementTypeOrSelf(value.getType()); }
bool isHalf(Type type) { return type.isBF16() || type.isF16(); }

double roundoff(Type type) {
  return type.isF64()           ? 0x1p-53
         : type.isBF16()        ? 0x1p-8
         : type.isF16()         ? 0x1p-11
         : isa<FloatType>(type) ? 0x1p-24
                                : 0;
}
/// Half of the distance between the smallest numbers of a type.
double underflow(Type type) {
  return type.isF64() ? 0 : type.isBF16() ? 0x1p-134 : type.isF16() ? 0x1p-25 : 0x1p-150;
}

double roundTo(double value, Type type) {
  llvm::APFloat number(value);
  bool lost;
  number.convert(cast<FloatType>(type).getFloatSemantics(), llvm::APFloat::rmNearestTiesToEven,
                 &lost);
  number.convert(llvm::APFloat::IEEEdouble(), llvm::APFloat::rmNearestTiesToEven, &lost);
  return number.convertToDouble();
}

/// Maximum number of rounding errors that add up in a term of a sum of n terms.
double height(double n) { return std::max(0.0, std::min(n - 1, 6 * std::sqrt(n))); }

Tensor magnitude(Tensor x) {
  for (double &v : x.values)
    v = std::fabs(v);
  return x;
}
Tensor sum(Tensor x, const Tensor &y) {
  for (size_t i = 0; i < x.values.size(); ++i)
    x.values[i] += y.values[i];
  return x;
}

/// exp(x + e) - exp(x), with y = exp(x). Masked scores are -3e38, and their errors are so large
/// that the plain formula gives 0 * infinity.
double growth(double x, double e, double y) {
  const double growth = y * std::expm1(e);
  return std::isnan(growth) ? std::exp(x + e) - y : growth;
}

class Analysis {
public:
  /// \param half  whether the function reads or writes 16-bit numbers
  Analysis(const reference::Options &options, bool half) : options(options), half(half) {}

  DenseMap<Value, Banded> all;

  LogicalResult visit(Operation *op) {
    if (failed(bound(op)))
      return failure();
    // 0 * infinity: a row that a mask of -3e38 hides completely has no bound here;
    // RowsThatAreMaskedAsAWhole compares such rows with the definition.
    for (double &error : all[op->getResult(0)].error.values)
      error = std::isnan(error) ? kInfinite : error;
    return success();
  }

private:
  const reference::Options &options;
  const bool half;

  LogicalResult bound(Operation *op) {
    std::vector<Tensor> values;
    for (Value operand : op->getOperands())
      values.push_back(all[operand].value);
    FailureOr<Tensor> y = evaluate(op, values);
    if (failed(y))
      return failure();
    Banded &result = all[op->getResult(0)];
    result.value = std::move(*y);
    result.error = Tensor::filled(result.value.shape, 0);
    if (isa<ReshapeOp, TransposeOp, SliceOp, ConcatOp, BroadcastOp, GatherOp, TakeAlongDimOp,
            TakeAlongDimGradOp, ScatterAddOp, ReduceOp, MatmulOp, MatmulGradWeightOp, DropoutOp>(
            op))
      return linear(op, result);
    if (isa<CausalMaskOp, SampleNumberOp>(op))
      return success();
    if (isa<ZorseDialect>(op->getDialect()) && !isa<RoundOp>(op))
      return op->emitOpError("has no bound of its rounding errors");
    for (size_t i = 0; i < result.value.values.size(); ++i)
      if (failed(elementwise(op, result, i)))
        return op->emitOpError("has no bound of its rounding errors");
    if (!op->hasAttr(kGiven) && !isa<RoundOp>(op))
      return success();
    roundResult(result, isa<RoundOp>(op) ? cast<RoundOp>(op).getTo() : elementOf(op->getResult(0)));
    return success();
  }

  /// Evaluates an operation without rounding its result to half precision.
  FailureOr<Tensor> evaluate(Operation *op, ArrayRef<Tensor> operands) {
    Value y = op->getResult(0);
    auto type = cast<RankedTensorType>(y.getType());
    // A rounding is the identity here.
    if (isa<arith::TruncFOp, RoundOp>(op))
      return operands[0];
    if (isHalf(type.getElementType()) && !isa<arith::ConstantOp>(op))
      y.setType(type.clone(Float64Type::get(op->getContext())));
    FailureOr<std::vector<Tensor>> results = reference::evaluate(op, operands, options);
    y.setType(type);
    if (failed(results))
      return failure();
    return std::move(results->front());
  }

  /// Replaces an interval by the interval of its rounded numbers.
  static void roundResult(Banded &result, Type to) {
    for (auto [value, error] : llvm::zip(result.value.values, result.error.values)) {
      const double middle = roundTo(value, to), high = roundTo(value + error, to),
                   low = roundTo(value - error, to);
      error = high == low || !std::isfinite(value) ? 0
              : std::isfinite(middle)              ? std::max(high - middle, middle - low)
                                                   : kInfinite;
      value = middle;
    }
  }

  /// Computes the bounds of operations that are linear in each operand: errors propagate like
  /// values.
  LogicalResult linear(Operation *op, Banded &result) {
    const double u = roundoff(elementOf(op->getResult(0)).isF64()
                                  ? elementOf(op->getResult(0))
                                  : Type(Float32Type::get(op->getContext())));
    auto of = [&](unsigned i) -> const Banded & { return all[op->getOperand(i)]; };
    auto run = [&](const std::vector<Tensor> &operands) { return *evaluate(op, operands); };
    std::vector<Tensor> errors, sizes; // for floats and conditions; indices are exact
    for (unsigned i = 0; i < op->getNumOperands(); ++i) {
      const bool index = isa<IntegerType>(elementOf(op->getOperand(i))) &&
                         !elementOf(op->getOperand(i)).isInteger(1);
      errors.push_back(index && !isViewLike(op) ? of(i).value : of(i).error);
      sizes.push_back(index ? of(i).value : magnitude(of(i).value));
    }
    double terms = 0; // terms of each sum
    const auto elements = [](const Tensor &t) { return double(std::max<int64_t>(1, t.size())); };
    if (auto reduce = dyn_cast<ReduceOp>(op)) {
      if (reduce.getKind() == ReduceKind::Max) {
        result.error = run(errors);
        return success();
      }
      if (reduce.getKind() != ReduceKind::Sum)
        return op->emitOpError("has no bound of its rounding errors");
      terms = elements(of(0).value) / elements(result.value);
    }
    if (isa<ScatterAddOp>(op))
      terms = elements(of(0).value), result.roundings = height(terms + 1);
    if (isa<MatmulOp, MatmulGradWeightOp>(op)) {
      const bool gradWeight = isa<MatmulGradWeightOp>(op);
      const std::vector<int64_t> &shape = of(0).value.shape;
      terms = double(gradWeight ? of(0).value.size() / std::max<int64_t>(1, shape.back())
                     : cast<MatmulOp>(op).getTransposeA() ? shape[shape.size() - 2]
                                                          : shape.back());
      result.error = sum(run({errors[0], sum(sizes[1], errors[1])}), run({sizes[0], errors[1]}));
    } else {
      result.error = run(errors);
    }
    if (isa<DropoutOp>(op))
      for (auto [error, value] : llvm::zip(result.error.values, result.value.values))
        error = std::fabs(error) + 2 * u * std::fabs(value); // rounding of the factor and of the
                                                             // product
    if (terms > 0) {
      const Tensor total = run(sizes);
      for (size_t i = 0; i < total.values.size(); ++i)
        result.error.values[i] +=
            u * (height(terms) + (isa<MatmulOp, MatmulGradWeightOp>(op) ? 1 : 0)) *
            (total.values[i] + result.error.values[i]);
    }
    for (auto [error, value] : llvm::zip(result.error.values, result.value.values))
      if (!std::isfinite(value))
        error = 0;
    if (Type element = elementOf(op->getResult(0));
        isHalf(element) && isa<MatmulOp, MatmulGradWeightOp>(op))
      roundResult(result, element);
    return success();
  }

  /// Whether a kernel may use an approximation: kernels of 16-bit models do.
  bool isNearly(Operation *op) const {
    auto fast = dyn_cast<arith::ArithFastMathInterface>(op);
    return half && fast &&
           bitEnumContainsAny(fast.getFastMathFlagsAttr().getValue(), arith::FastMathFlags::afn);
  }

  static bool isViewLike(Operation *op) {
    return isa<ReshapeOp, TransposeOp, SliceOp, ConcatOp, BroadcastOp>(op);
  }

  LogicalResult elementwise(Operation *op, Banded &result, size_t i) {
    auto at = [&](const Tensor &t) { return t.values[t.values.size() == 1 ? 0 : i]; };
    double x[3] = {}, e[3] = {};
    for (unsigned k = 0; k < op->getNumOperands(); ++k)
      x[k] = at(all[op->getOperand(k)].value), e[k] = at(all[op->getOperand(k)].error);
    const double y = result.value.values[i];
    double &error = result.error.values[i];
    const Type type = elementOf(op->getResult(0));
    double own = roundoff(type),
           carried = 0; // units of the operation's own rounding; error from the operands
    if (isa<arith::ConstantOp>(op)) {
      // Constants of at most twelve bits are exact; others may have been rounded.
      int exponent;
      const double fraction = std::frexp(y, &exponent) * 4096;
      own = fraction == std::floor(fraction) ? 0 : own;
    } else if (isa<arith::AddFOp, arith::SubFOp>(op)) {
      carried = e[0] + e[1];
    } else if (isa<arith::MulFOp>(op)) {
      carried = std::fabs(x[0]) * e[1] + std::fabs(x[1]) * e[0] + e[0] * e[1];
    } else if (isa<arith::DivFOp>(op)) {
      carried = e[1] >= std::fabs(x[1]) ? (e[1] > 0 ? kInfinite : 0)
                                        : (e[0] + std::fabs(y) * e[1]) / (std::fabs(x[1]) - e[1]);
      if (isNearly(op))
        own *= kDivNearly, carried += std::fabs(x[0]) * kMinNormal;
      if (elementOf(op->getResult(0)).isF32() && std::fabs(x[1]) >= 0x1p127) // infinite in f32, or
                                                                             // almost
        carried += std::fabs(y);
    } else if (isa<arith::NegFOp, math::AbsFOp, arith::ExtFOp>(op)) {
      own = 0, carried = e[0];
    } else if (isa<arith::TruncFOp, RoundOp>(op)) {
      // The reference performs the roundings of the function (visit), but not those that only the
      // expansion has. They count twice: once for the reference, once for the kernel.
      own = op->hasAttr(kGiven) || isa<RoundOp>(op) ? 0 : isHalf(type) ? 2 * own : own;
      carried = e[0];
    } else if (isa<arith::MaximumFOp, arith::MinimumFOp>(op)) {
      own = 0, carried = std::max(e[0], e[1]);
      if (std::fabs(x[0] - x[1]) > e[0] + e[1])
        carried = y == x[0] ? e[0] : e[1];
    } else if (isa<math::SqrtOp>(op)) {
      carried = e[0] == 0 ? 0
                          : std::max(std::sqrt(x[0] + e[0]) - y,
                                     y - std::sqrt(std::max(0.0, x[0] - e[0])));
    } else if (isa<math::ExpOp>(op)) {
      own *= isNearly(op) ? kExpNearly + std::fabs(x[0]) : kExp;
      carried = growth(x[0], e[0], y) + (std::isfinite(x[0]) ? kMinNormal : 0);
    } else if (isa<math::LogOp>(op)) {
      own *= kLog, carried = e[0] == 0 ? 0 : e[0] >= x[0] ? kInfinite : -std::log1p(-e[0] / x[0]);
    } else if (isa<math::TanhOp>(op)) {
      const double min = std::tanh(std::max(0.0, std::fabs(x[0]) - e[0]));
      own *= kTanh, carried = e[0] * (1 - min * min);
    } else if (isa<math::ErfOp>(op)) {
      const double min = std::max(0.0, std::fabs(x[0]) - e[0]);
      own *= kErf, carried = e[0] * 1.1283791670955126 * std::exp(-min * min);
    } else if (isa<math::Exp2Op>(op)) {
      own *= kExp, carried = growth(x[0] * 0.7, e[0] * 0.7, y) + kMinNormal;
    } else if (isa<math::PowFOp>(op)) { // with a constant base, in f64: exp(x1 log(x0))
      own *= 4 + 4 * std::fabs(x[1] * std::log(x[0]));
    } else if (isa<arith::SelectOp>(op)) {
      own = 0, carried = x[0] != 0 ? e[1] : e[2];
      if (e[0] > 0) // both values are possible
        carried = std::max(e[1], e[2]) + std::fabs(x[1] - x[2]);
    } else if (isa<arith::CmpFOp>(op)) {
      own = 0, carried = e[0] + e[1] > 0 && std::fabs(x[0] - x[1]) <= e[0] + e[1] ? 1 : 0;
    } else if (isa<arith::SIToFPOp, arith::UIToFPOp>(op)) {
      own = std::fabs(y) < 0x1p24 && !isHalf(type) ? 0 : own;
    } else if (!isa<IntegerType>(type)) {
      return failure();
    } else {
      own = 0;
      for (unsigned k = 0; k < op->getNumOperands(); ++k)
        carried = std::max(carried, e[k]);
    }
    if (own == 0 || !std::isfinite(y))
      error = std::isfinite(y) ? carried : 0;
    else
      error = carried + own * (std::fabs(y) + carried) +
              (y != 0 || carried != 0 ? underflow(type) : 0);
    // The error of a sum is limited by the size of each term: a masked score of -3e38 absorbs the
    // score.
    if (isa<arith::AddFOp, arith::SubFOp>(op) && std::isfinite(y))
      error = std::min(error, carried + std::min(std::fabs(x[0]) + e[0], std::fabs(x[1]) + e[1]));
    return success();
  }
};

} // namespace

FailureOr<std::vector<Banded>> conformance::tolerancesOf(func::FuncOp function,
                                                         ArrayRef<Tensor> arguments,
                                                         const reference::Options &options) {
  OwningOpRef<func::FuncOp> expanded(function.clone());
  Builder builder(function.getContext());
  expanded->walk([&](arith::TruncFOp op) {
    if (isHalf(elementOf(op)))
      op->setAttr(kGiven, builder.getUnitAttr());
  });
  if (failed(codegen::cuda::decomposeAttention(*expanded)))
    return failure();
  codegen::decomposeRowOps(*expanded);
  codegen::decomposeColumnOps(*expanded);
  eraseDeadOps(expanded->getBody().front());
  const bool half = expanded
                        ->walk([](Operation *op) {
                          auto isNarrow = [](Value value) { return isHalf(elementOf(value)); };
                          return llvm::any_of(op->getOperands(), isNarrow) ||
                                         llvm::any_of(op->getResults(), isNarrow)
                                     ? WalkResult::interrupt()
                                     : WalkResult::advance();
                        })
                        .wasInterrupted();
  Analysis analysis(options, half);
  for (auto [argument, tensor] : llvm::zip(expanded->getArguments(), arguments))
    analysis.all[argument] = {tensor, Tensor::filled(tensor.shape, 0)};
  for (Operation &op : expanded->getBody().front().without_terminator())
    if (failed(analysis.visit(&op)))
      return failure();
  std::vector<Banded> results;
  for (Value value : expanded->getBody().front().getTerminator()->getOperands())
    results.push_back(analysis.all[value]);
  return results;
}
