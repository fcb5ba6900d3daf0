// Tests the factors of every op numerically. An op is divided into two parts along a factor, and
// each part gets its share of the operands. The parts must give the parts of the results, or
// results that combine to the whole.
#include "zorse/Dialect/Zorse/ZorseOps.h"
#include "zorse/Support/ReferenceEvaluator.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Parser/Parser.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <set>

using namespace mlir;
using namespace zorse;
using reference::Tensor;

namespace {

constexpr int64_t kRows = 5;

/// One op: the types of its operands, and the op on %0, %1, ...
struct Case {
  const char *operands, *op;
};

const Case kCases[] = {
    {"tensor<?x6x4xf64>", "zorse.reshape %0 : tensor<?x6x4xf64> -> tensor<?x2x12xf64>"},
    {"tensor<6x4xf64>", "zorse.reshape %0 : tensor<6x4xf64> -> tensor<3x1x8xf64>"},
    {"tensor<?x6x4xf64>", "zorse.reshape %0 : tensor<?x6x4xf64> -> tensor<?x8x3xf64>"},
    {"tensor<?x3x4x5xf64>",
     "zorse.transpose %0 [0, 2, 3, 1] : tensor<?x3x4x5xf64> -> tensor<?x4x5x3xf64>"},
    {"tensor<?x3x9xf64>",
     "zorse.slice %0 [0, 0, 2] [?, 3, 4] [1, 1, 1] : tensor<?x3x9xf64> -> tensor<?x3x4xf64>"},
    {"tensor<?x7x9xf64>",
     "zorse.slice %0 [0, 1, 5] [?, 3, 4] [1, 2, 1] : tensor<?x7x9xf64> -> tensor<?x3x4xf64>"},
    {"tensor<?x3x2xf64>, tensor<?x3x4xf64>",
     "zorse.concat %0, %1 {dim = 2 : i64} : (tensor<?x3x2xf64>, tensor<?x3x4xf64>) -> "
     "tensor<?x3x6xf64>"},
    {"tensor<?x3xf64>",
     "zorse.concat %0, %0 {dim = 1 : i64} : (tensor<?x3xf64>, tensor<?x3xf64>) -> tensor<?x6xf64>"},
    {"tensor<4x3xf64>", "zorse.broadcast %0 dims [1, 3] : tensor<4x3xf64> -> tensor<?x4x2x3xf64>"},
    {"tensor<?x4x3xf64>", "zorse.reduce sum %0 dims [0, 2] : tensor<?x4x3xf64> -> tensor<4xf64>"},
    {"tensor<?x4x3xf64>", "zorse.reduce max %0 dims [1] : tensor<?x4x3xf64> -> tensor<?x3xf64>"},
    {"tensor<?x4x3xf64>", "zorse.reduce min %0 dims [1, 2] : tensor<?x4x3xf64> -> tensor<?xf64>"},
    {"tensor<?x4x3xf64>", "zorse.reduce prod %0 dims [2] : tensor<?x4x3xf64> -> tensor<?x4xf64>"},
    {"tensor<?x3x4xf64>, tensor<6x4xf64>",
     "zorse.matmul %0, %1 {transpose_b} : tensor<?x3x4xf64>, tensor<6x4xf64> -> tensor<?x3x6xf64>"},
    {"tensor<?x4x3xf64>, tensor<?x4x6xf64>",
     "zorse.matmul %0, %1 {transpose_a} : tensor<?x4x3xf64>, tensor<?x4x6xf64> -> "
     "tensor<?x3x6xf64>"},
    {"tensor<?x4x3xf64>", "zorse.matmul %0, %0 {transpose_b} : tensor<?x4x3xf64>, "
                          "tensor<?x4x3xf64> -> tensor<?x4x4xf64>"},
    {"tensor<?x3x4xf64>, tensor<4x6xf64>, tensor<6xf64>",
     "zorse.biased_matmul %0, %1, %2 : tensor<?x3x4xf64>, tensor<4x6xf64>, tensor<6xf64> -> "
     "tensor<?x3x6xf64>"},
    {"tensor<?x3x4xf64>, tensor<?x3x6xf64>",
     "zorse.matmul_grad_weight %0, %1 : tensor<?x3x4xf64>, tensor<?x3x6xf64> -> tensor<4x6xf64>"},
    {"tensor<7x4xf64>, tensor<?x3xi64>",
     "zorse.gather %0, %1 : tensor<7x4xf64>, tensor<?x3xi64> -> tensor<?x3x4xf64>"},
    {"tensor<7x4xf64>, tensor<?x3xi64>", "zorse.gather %0, %1 {padding = 1 : i64} : "
                                         "tensor<7x4xf64>, tensor<?x3xi64> -> tensor<?x3x4xf64>"},
    {"tensor<?x3xi64>, tensor<?x3x4xf64>",
     "zorse.scatter_add %0, %1 : tensor<?x3xi64>, tensor<?x3x4xf64> -> tensor<7x4xf64>"},
    {"tensor<?x3xi64>, tensor<?x3x4xf64>", "zorse.scatter_add %0, %1 {padding = 1 : i64} : "
                                           "tensor<?x3xi64>, tensor<?x3x4xf64> -> tensor<7x4xf64>"},
    {"tensor<?x3x7xf64>, tensor<?x3xi64>",
     "zorse.take_along_dim %0, %1 : tensor<?x3x7xf64>, tensor<?x3xi64> -> tensor<?x3xf64>"},
    {"tensor<?x3xf64>, tensor<?x3xi64>",
     "zorse.take_along_dim_grad %0, %1 : tensor<?x3xf64>, tensor<?x3xi64> -> tensor<?x3x7xf64>"},
    {"tensor<?x3x4xf64>", "zorse.softmax %0 : tensor<?x3x4xf64>"},
    {"tensor<?x3x4xf64>", "zorse.log_softmax %0 : tensor<?x3x4xf64>"},
    {"tensor<?x3x4xf64>, tensor<?x3x4xf64>", "zorse.softmax_grad %0, %1 : tensor<?x3x4xf64>"},
    {"tensor<?x3x4xf64>, tensor<?x3x4xf64>", "zorse.log_softmax_grad %0, %1 : tensor<?x3x4xf64>"},
    {"tensor<?x3x4xf64>, tensor<4xf64>, tensor<4xf64>",
     "zorse.layer_norm %0 weight %1 bias %2 {epsilon = 1.0e-5 : f64} : (tensor<?x3x4xf64>, "
     "tensor<4xf64>, tensor<4xf64>) -> (tensor<?x3x4xf64>, "
     "tensor<?x3xf64>, tensor<?x3xf64>)"},
    {"tensor<?x4x4xf64>, tensor<4xf64>", "zorse.layer_norm %0 bias %1 {epsilon = 1.0e-5 : f64} : "
                                         "(tensor<?x4x4xf64>, tensor<4xf64>) -> tensor<?x4x4xf64>"},
    {"tensor<?x3x4xf64>, tensor<?x3x4xf64>, tensor<?x3xf64>, tensor<?x3xf64>, tensor<4xf64>",
     "zorse.layer_norm_grad_input %0, %1, %2, %3 weight %4 : (tensor<?x3x4xf64>, "
     "tensor<?x3x4xf64>, tensor<?x3xf64>, tensor<?x3xf64>, tensor<4xf64>) "
     "-> "
     "tensor<?x3x4xf64>"},
    {"tensor<?x3x4xf64>, tensor<?x3x4xf64>, tensor<?x3xf64>, tensor<?x3xf64>",
     "zorse.layer_norm_grad_params %0, %1, %2, %3 : (tensor<?x3x4xf64>, tensor<?x3x4xf64>, "
     "tensor<?x3xf64>, tensor<?x3xf64>) -> (tensor<4xf64>, "
     "tensor<4xf64>)"},
    {"tensor<?x3x4xf64>, tensor<4xf64>",
     "zorse.rms_norm %0 weight %1 {epsilon = 1.0e-5 : f64} : (tensor<?x3x4xf64>, tensor<4xf64>) -> "
     "(tensor<?x3x4xf64>, tensor<?x3xf64>)"},
    {"tensor<?x3x4xf64>, tensor<?x3x4xf64>, tensor<?x3xf64>, tensor<4xf64>",
     "zorse.rms_norm_grad_input %0, %1, %2 weight %3 : (tensor<?x3x4xf64>, tensor<?x3x4xf64>, "
     "tensor<?x3xf64>, tensor<4xf64>) -> tensor<?x3x4xf64>"},
    {"tensor<?x3x4xf64>, tensor<?x3x4xf64>, tensor<?x3xf64>",
     "zorse.rms_norm_grad_params %0, %1, %2 : (tensor<?x3x4xf64>, tensor<?x3x4xf64>, "
     "tensor<?x3xf64>) -> tensor<4xf64>"},
    {"tensor<?x3x4xf64>", "zorse.gelu %0 {approximate} : tensor<?x3x4xf64>"},
    {"tensor<?x3x4xf64>", "zorse.silu %0 : tensor<?x3x4xf64>"},
    {"tensor<?x3x4xf64>, tensor<?x3x4xf64>", "zorse.gelu_grad %0, %1 : tensor<?x3x4xf64>"},
    {"tensor<?x3x4xf64>, tensor<?x3x4xf64>", "zorse.silu_grad %0, %1 : tensor<?x3x4xf64>"},
    {"tensor<?x5x6x4xf64>, tensor<?x3x2x4xf64>, tensor<?x3x2x7xf64>, tensor<1x6x5x3xf64>",
     "zorse.attention %0, %1, %2 mask %3 {scale = 0.5 : f64} : (tensor<?x5x6x4xf64>, "
     "tensor<?x3x2x4xf64>, tensor<?x3x2x7xf64>, tensor<1x6x5x3xf64>) "
     "-> "
     "(tensor<?x5x6x7xf64>, tensor<?x6x5x2xf64>)"},
    {"tensor<?x3x4x4xf64>, tensor<?x3x2x4xf64>, tensor<?x3x2x2xf64>",
     "zorse.attention %0, %1, %2 {causal, dropout = 0.3 : f64, scale = 0.5 : f64} : "
     "(tensor<?x3x4x4xf64>, tensor<?x3x2x4xf64>, tensor<?x3x2x2xf64>) -> "
     "tensor<?x3x4x2xf64>"},
    {"tensor<?x5x6x7xf64>, tensor<?x5x6x4xf64>, tensor<?x3x2x4xf64>, tensor<?x3x2x7xf64>, "
     "tensor<?x5x6x7xf64>, tensor<?x6x5xf64>, tensor<?x1x5x3xi1>",
     "zorse.attention_grad %0, %1, %2, %3, %4, %5 mask %6 {scale = 0.5 : f64} : "
     "(tensor<?x5x6x7xf64>, tensor<?x5x6x4xf64>, tensor<?x3x2x4xf64>, "
     "tensor<?x3x2x7xf64>, tensor<?x5x6x7xf64>, tensor<?x6x5xf64>, tensor<?x1x5x3xi1>) -> "
     "(tensor<?x5x6x4xf64>, tensor<?x3x2x4xf64>, "
     "tensor<?x3x2x7xf64>)"},
    {"", "zorse.causal_mask : tensor<4x5xi1>"},
    {"tensor<?x3x2x8xf64>, tensor<3x4xf64>, tensor<3x4xf64>",
     "zorse.rope %0, %1, %2 : (tensor<?x3x2x8xf64>, tensor<3x4xf64>, tensor<3x4xf64>) -> "
     "tensor<?x3x2x8xf64>"},
    {"tensor<?x3x2x8xf64>, tensor<?x3x4xf64>, tensor<?x3x4xf64>",
     "zorse.rope %0, %1, %2 {interleaved} : (tensor<?x3x2x8xf64>, tensor<?x3x4xf64>, "
     "tensor<?x3x4xf64>) -> tensor<?x3x2x8xf64>"},
    {"tensor<?x3x7xf64>, tensor<?x3xi64>, tensor<7xf64>",
     "zorse.cross_entropy %0, %1 weights %2 : (tensor<?x3x7xf64>, tensor<?x3xi64>, tensor<7xf64>) "
     "-> (tensor<?x3xf64>, tensor<?x3x2xf64>)"},
    {"tensor<?x3xf64>, tensor<?x3x7xf64>, tensor<?x3xi64>, tensor<?x3x2xf64>",
     "zorse.cross_entropy_grad %0, %1, %2, %3 : (tensor<?x3xf64>, tensor<?x3x7xf64>, "
     "tensor<?x3xi64>, tensor<?x3x2xf64>) -> tensor<?x3x7xf64>"},
    {"", "zorse.known \"B\" : tensor<f64>"},
    {"", "zorse.sample_number : tensor<?xi64>"},
    {"tensor<?x3x4xf64>",
     "zorse.dropout %0 {probability = 0.5 : f64, rng_id = 0 : i64} : tensor<?x3x4xf64>"},
    {"tensor<?x3x4xf64>, tensor<3x4xf64>",
     "zorse.running_stat %0, %1 {correction = 1.1 : f64, momentum = 0.1 : f64} : "
     "tensor<?x3x4xf64>, tensor<3x4xf64>"},
    {"tensor<?x3x4xf64>", "zorse.round %0 to bf16 : tensor<?x3x4xf64>"},
    {"tensor<?x3x4xf64>", "zorse.detach %0 : tensor<?x3x4xf64>"},
    {"tensor<?x3x4xf64>, tensor<?x3x4xf64>", "zorse.gradient_of %0, %1 : tensor<?x3x4xf64>"},
    {"tensor<?x3xf64>, tensor<?x3xf64>", "arith.addf %0, %1 : tensor<?x3xf64>"},
    {"i1, tensor<?x3xf64>, tensor<?x3xf64>", "arith.select %0, %1, %2 : tensor<?x3xf64>"},
    {"tensor<?x3xf64>", "math.tanh %0 : tensor<?x3xf64>"},
};

/// A range of a factor.
struct Share {
  unsigned factor;
  int64_t begin, end;
  bool padded = false; ///< ids index along the factor: one point of zeros is added, for ids outside
                       ///< the share
};

int64_t sizeOf(int64_t size) { return size == ShapedType::kDynamic ? kRows : size; }

/// Points of a dimension that belong to a share, -1 for the added point; all points if the
/// dimension does not contain the factor.
std::vector<int64_t> pointsOf(const OpFactors &rule, const OpFactors::Dimension &dimension,
                              const Share &share) {
  std::vector<int64_t> points;
  int64_t at = 0;
  for (const OpFactors::Segment &segment : dimension) {
    int64_t inner = 1, size = 0;
    for (unsigned factor : llvm::reverse(segment.factors)) {
      if (factor == share.factor) {
        size = sizeOf(rule.factors[factor].size);
        break;
      }
      inner *= sizeOf(rule.factors[factor].size);
    }
    for (int64_t point = 0; point < sizeOf(segment.size); ++point, ++at)
      if (int64_t coordinate = size ? point / inner % size : share.begin;
          coordinate >= share.begin && coordinate < share.end)
        points.push_back(at);
    if (size && share.padded)
      points.push_back(-1);
  }
  return points;
}

std::vector<std::vector<int64_t>> pointsOf(const OpFactors &rule, const OpFactors::Value &value,
                                           const Share &share) {
  std::vector<std::vector<int64_t>> points;
  for (const OpFactors::Dimension &dimension : value)
    points.push_back(pointsOf(rule, dimension, share));
  return points;
}

/// Calls `visit` for every index of `points`, in row-major order, with its position in the whole
/// tensor (-1: none) and in the part.
template <typename Visit>
void forEachPoint(ArrayRef<int64_t> shape, const std::vector<std::vector<int64_t>> &points,
                  Visit visit) {
  int64_t count = 1;
  for (const std::vector<int64_t> &dimension : points)
    count *= dimension.size();
  for (int64_t i = 0; i < count; ++i) {
    int64_t rest = i, whole = 0, stride = 1;
    bool outside = false;
    for (size_t d = points.size(); d-- > 0;) {
      int64_t point = points[d][rest % points[d].size()];
      rest /= points[d].size();
      outside |= point < 0;
      whole += point * stride;
      stride *= shape[d];
    }
    visit(outside ? -1 : whole, i);
  }
}

class FactorsOfOps : public ::testing::Test {
protected:
  FactorsOfOps() : context(registry()) { context.loadAllAvailableDialects(); }

  static DialectRegistry registry() {
    DialectRegistry registry;
    registry.insert<ZorseDialect, arith::ArithDialect, math::MathDialect, func::FuncDialect>();
    registerCostAndFactorsModels(registry);
    return registry;
  }

  /// Parses a function that contains the op of a case. Null on failure.
  OwningOpRef<ModuleOp> parse(const Case &one) {
    std::string arguments, type;
    int depth = 0, count = 0;
    for (const char *c = one.operands; *one.operands; ++c) {
      depth += (*c == '<') - (*c == '>');
      if (*c && (*c != ',' || depth)) {
        type += *c;
        continue;
      }
      arguments += std::string(count ? ", " : "") + "%a" + std::to_string(count) + ": " + type;
      ++count, type.clear();
      if (!*c)
        break;
    }
    std::string op = one.op;
    for (size_t at = 0; (at = op.find('%', at)) != std::string::npos; at += 2)
      op.insert(at + 1, "a");
    return parseSourceString<ModuleOp>("func.func @f(" + arguments + ") {\n" + op + "\nreturn\n}",
                                       &context);
  }

  MLIRContext context;
  std::mt19937 random{7};
};

/// Random operands; row ids for operands that are indices.
std::vector<Tensor> operandsOf(Operation *op, const OpFactors &rule, std::mt19937 &random) {
  std::vector<Tensor> operands;
  for (auto [i, operand] : llvm::enumerate(op->getOperands())) {
    std::vector<int64_t> shape;
    if (auto type = dyn_cast<RankedTensorType>(operand.getType()))
      for (int64_t size : type.getShape())
        shape.push_back(sizeOf(size));
    Type element = getElementTypeOrSelf(operand.getType());
    int64_t ids = 2;
    for (const OpFactors::Offset &offset : rule.offsets)
      if (offset.operand == i)
        ids = rule.factors[offset.factor].size;
    Tensor tensor = Tensor::filled(shape, 0);
    for (double &value : tensor.values)
      value = isa<FloatType>(element) ? std::uniform_real_distribution<>(0.25, 2)(random)
              : element.isInteger(1)  ? double(random() % 2)
                                      : double(random() % ids);
    if (!isa<FloatType>(element) && shape.empty())
      tensor.values.assign(1, 0); // skip
    operands.push_back(tensor);
  }
  return operands;
}

/// Makes the op of a share, at the end of a block with its arguments.
Operation *partOf(Operation *op, const OpFactors &rule, const Share &share, Block &block) {
  auto typeOf = [&](Value value, const OpFactors::Value &dimensions) -> Type {
    auto type = dyn_cast<RankedTensorType>(value.getType());
    if (!type)
      return value.getType();
    SmallVector<int64_t> shape;
    for (auto [size, dimension] : llvm::zip(type.getShape(), dimensions))
      shape.push_back(size == ShapedType::kDynamic ? size
                                                   : pointsOf(rule, dimension, share).size());
    return RankedTensorType::get(shape, type.getElementType());
  };
  Operation *part = op->clone();
  for (auto [i, operand] : llvm::enumerate(op->getOperands()))
    part->setOperand(i, block.addArgument(typeOf(operand, rule.operands[i]), op->getLoc()));
  for (auto [i, result] : llvm::enumerate(op->getResults()))
    part->getResult(i).setType(typeOf(result, rule.results[i]));
  if (auto slice = dyn_cast<SliceOp>(part))
    slice.setSizes(cast<RankedTensorType>(slice.getY().getType()).getShape());
  block.push_back(part);
  return part;
}

/// Operands of a share, with ids relative to its beginning.
std::vector<Tensor> operandsOf(const OpFactors &rule, const Share &share, ArrayRef<Tensor> whole) {
  std::vector<Tensor> parts;
  for (size_t i = 0; i < whole.size(); ++i) {
    const Tensor &tensor = whole[i];
    std::vector<std::vector<int64_t>> points = pointsOf(rule, rule.operands[i], share);
    std::vector<int64_t> shape;
    for (const std::vector<int64_t> &dimension : points)
      shape.push_back(dimension.size());
    Tensor part = Tensor::filled(shape, 0);
    forEachPoint(tensor.shape, points, [&](int64_t from, int64_t to) {
      part.values[to] = from < 0 ? 0 : tensor.values[from];
    });
    for (const OpFactors::Offset &offset : rule.offsets)
      if (offset.operand == i && offset.factor == share.factor)
        for (double &id : part.values)
          id = id >= share.begin && id < share.end ? id - share.begin : share.end - share.begin;
    parts.push_back(part);
  }
  return parts;
}

bool mentions(const OpFactors::Value &value, unsigned factor) {
  return llvm::any_of(value, [&](const OpFactors::Dimension &dimension) {
    return llvm::any_of(dimension, [&](const OpFactors::Segment &segment) {
      return llvm::is_contained(segment.factors, factor);
    });
  });
}

double combine(Combiner combiner, double a, double b) {
  switch (combiner) {
  case Combiner::Sum:
    return a + b;
  case Combiner::Max:
    return std::max(a, b);
  case Combiner::Min:
    return std::min(a, b);
  default:
    return a * b;
  }
}

/// Checks that the shares [0, cut) and [cut, size) of a factor give the whole. Returns the first
/// difference, or an empty string.
std::string compareShares(Operation *op, const OpFactors &rule, unsigned factor, int64_t cut,
                          ArrayRef<Tensor> operands, ArrayRef<Tensor> whole) {
  int64_t size = sizeOf(rule.factors[factor].size);
  bool isSamples = rule.factors[factor].size == ShapedType::kDynamic;
  std::vector<Tensor> found;
  for (const Tensor &result : whole)
    found.push_back(Tensor::filled(result.shape, NAN));
  for (Share share : {Share{factor, 0, cut}, Share{factor, cut, size}}) {
    share.padded = llvm::any_of(rule.offsets, [&](const OpFactors::Offset &offset) {
      return offset.factor == factor && offset.operand;
    });
    Block block;
    Operation *part = partOf(op, rule, share, block);
    if (failed(verify(part)))
      return "the part is no valid op";
    reference::Options options;
    options.rows = isSamples ? share.end - share.begin : kRows;
    options.sampleBase = isSamples ? share.begin : 0;
    FailureOr<std::vector<Tensor>> results =
        reference::evaluate(part, operandsOf(rule, share, operands), options);
    if (failed(results))
      return "the part cannot be evaluated";
    for (auto [i, result] : llvm::enumerate(*results))
      forEachPoint(whole[i].shape, pointsOf(rule, rule.results[i], share),
                   [&, i = i, &result = result](int64_t to, int64_t from) {
                     if (to < 0)
                       return;
                     double &value = found[i].values[to];
                     if (std::isnan(value))
                       value = result.values[from];
                     else if (!mentions(rule.results[i], factor))
                       value = combine(rule.factors[factor].combiner, value, result.values[from]);
                     else if (value != result.values[from]) // a segment that both shares have
                                                            // completely
                       value = INFINITY;
                   });
  }
  for (auto [i, result] : llvm::enumerate(whole))
    for (auto [value, expected] : llvm::zip(found[i].values, result.values))
      if (!(std::abs(value - expected) <= 1e-12 * std::max(1.0, std::abs(expected))))
        return "result " + std::to_string(i) + ": " + std::to_string(value) + " instead of " +
               std::to_string(expected);
  return "";
}

} // namespace

TEST_F(FactorsOfOps, SharesMakeTheWhole) {
  int tried = 0;
  for (const Case &one : kCases) {
    OwningOpRef<ModuleOp> module = parse(one);
    ASSERT_TRUE(module) << one.op;
    Operation *op = &(*module->getOps<func::FuncOp>().begin()).front().front();
    OpFactors rule = cast<FactorsOpInterface>(op).getFactors();
    SCOPED_TRACE(std::string(one.op) + "\n" + toString(rule));
    EXPECT_EQ(check(rule, op), "");
    std::vector<Tensor> operands = operandsOf(op, rule, random);
    reference::Options options;
    options.rows = kRows;
    FailureOr<std::vector<Tensor>> whole = reference::evaluate(op, operands, options);
    ASSERT_TRUE(succeeded(whole));
    for (auto [factor, about] : llvm::enumerate(rule.factors)) {
      bool counts =
          llvm::any_of(rule.offsets, [&, factor = factor](const OpFactors::Offset &offset) {
            return offset.factor == factor && !offset.operand;
          });
      if (about.kind == FactorKind::Indivisible || counts ||
          (about.kind == FactorKind::Reduced && about.combiner == Combiner::LogSumExp))
        continue;
      for (int64_t cut = 1; cut < sizeOf(about.size); ++cut, ++tried)
        EXPECT_EQ(compareShares(op, rule, factor, cut, operands, *whole), "")
            << "factor " << factor << " cut at " << cut;
    }
  }
  std::cout << tried << " cuts of " << std::size(kCases) << " ops" << std::endl;
}

/// A new op needs a case.
TEST_F(FactorsOfOps, EveryOpHasACase) {
  std::set<std::string> missing;
  for (RegisteredOperationName name : context.getRegisteredOperations())
    if (name.getDialectNamespace() == "zorse" && name.hasInterface<FactorsOpInterface>())
      missing.insert(name.getStringRef().str());
  for (const Case &one : kCases)
    missing.erase(StringRef(one.op).split(' ').first.str());
  EXPECT_TRUE(missing.empty()) << *missing.begin();
}
